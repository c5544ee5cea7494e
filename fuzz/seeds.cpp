// hanji_fuzz_seeds DIR: writes a few good inputs of every parser, DIR/<target>/<name>.
#include <cstdio>
#include <cstring>
#include <string>

#include "hanji/base/file.h"
#include "hanji/checkpoint/manifest.h"
#include "hanji/cost/stored.h"
#include "hanji/data/beton_writer.h"
#include "hanji/launch/control_plane/channel.h"
#include "hanji/launch/control_plane/request.h"
#include "hanji/launch/internal/announcement.h"
#include "hanji/launch/internal/control.h"
#include "hanji/launch/internal/hosts_file.h"
#include "hanji/launch/internal/verdict.h"
#include "hanji/plan/load_config.h"
#include "hanji/plan/plan.h"
#include "hanji/report/observed.h"
#include "hanji/schedule/all_reduce.h"
#include "hanji/schedule/json.h"
#include "hanji/schedule/ring.h"
#include "hanji/topology/graph_text.h"

namespace {

using namespace hanji;

class Seeds {
 public:
  explicit Seeds(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void add(const std::string& target, const std::string& name, std::string_view content) {
    base::throw_if_error(base::make_directories(folder_ / target));
    base::throw_if_error(base::write_file_atomic(folder_ / target / name, content));
  }

 private:
  std::filesystem::path folder_;
};

template <class T>
std::string raw(const T& value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

std::string message(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_safetensors(Seeds& seeds) {
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  seeds.add("safetensors", "two", raw(uint64_t{header.size()}) + header + std::string(11, 'x'));
  seeds.add("safetensors", "none", raw(uint64_t{8}) + "{}      ");
}

void add_manifest(Seeds& seeds) {
  checkpoint::Manifest manifest{.step = 20, .num_samples = 240, .job = R"({"seed":7})"};
  manifest.validation_loss = 1.5;
  manifest.files = {
      {.name = "model.safetensors",
       .size_bytes = 100,
       .header_checksum = 1,
       .tensors = {{.name = "a", .shape = {2, 1}, .elements = {.size = 2}, .checksum = 2},
                   {.name = "b", .shape = {4, 6}, .elements = {6, 3}},
                   {.name = "c", .shape = {4, 6}, .elements = {2, 2, 6, 4}}}}};
  const std::string text = checkpoint::to_text(manifest).or_throw();
  seeds.add("manifest", "sealed", text);
  // The target seals every input itself.
  seeds.add("manifest", "open", text.substr(0, text.rfind(",\n \"checksum\"")));
}

void add_tokens(Seeds& seeds) {
  const std::string index = std::string("MMIDIDX\0\0", 9) + raw(uint64_t{1}) + raw(uint8_t{8}) +
                            raw(uint64_t{2}) + raw(uint64_t{3}) + raw(int32_t{3}) +
                            raw(int32_t{2}) + raw(int64_t{0}) + raw(int64_t{6}) + raw(int64_t{0}) +
                            raw(int64_t{1}) + raw(int64_t{2});
  seeds.add("tokens", "megatron", raw(uint64_t{10}) + index);
  std::string llmc(1024, '\0');
  const int32_t head[] = {20240520, 1, 4};
  std::memcpy(llmc.data(), head, sizeof(head));
  seeds.add("tokens", "llmc", raw(uint64_t{0}) + llmc + std::string(8, 'x'));
}

/// As FFCV writes them, then with our extension.
void add_beton(Seeds& seeds, const std::filesystem::path& folder) {
  const auto descriptor = [](char type, std::string name) {
    name.resize(16);
    return type + name + std::string(1024, '\0');
  };
  const std::string scalars = raw(uint16_t{2}) + raw(uint16_t{1}) + raw(uint32_t{4096}) +
                              raw(uint64_t{2}) + raw(uint64_t{1081}) + descriptor(1, "label") +
                              raw(int64_t{3}) + raw(int64_t{4});
  seeds.add("beton", "scalars", scalars);
  std::string image = raw(uint16_t{2}) + raw(uint16_t{2}) + raw(uint32_t{4096}) + raw(uint64_t{1}) +
                      raw(uint64_t{8192}) + descriptor(2, "image") + descriptor(3, "bytes") + '\0' +
                      raw(uint16_t{8}) + raw(uint16_t{8}) + raw(uint64_t{4096}) +
                      raw(uint64_t{4100}) + raw(uint64_t{2});
  image.resize(8192);
  for (const uint64_t number : {0, 4096, 4, 0, 4100, 2}) image += raw(number);
  seeds.add("beton", "image", image);
  seeds.add("beton", "jpeg",
            std::string("\xFF\xD8\xFF\xE0\x00\x02\xFF\xC0\x00\x08\x08\x00\x01\x00\x02\x03", 16));
  auto writer = data::BetonWriter::create(folder / "beton" / "written",
                                          {{"array", data::BetonType::kNdArray, {2}, "<u2"},
                                           {"json", data::BetonType::kJson}},
                                          {.num_samples = 1, .page_bytes = 4096})
                    .or_throw();
  const data::BetonValue values[] = {{.bytes = std::as_bytes(std::span("abc"))},
                                     {.bytes = std::as_bytes(std::span("{}").first<2>())}};
  base::throw_if_error(writer.append(values));
  base::throw_if_error(writer.finish());
}

void add_sample_files(Seeds& seeds) {
  std::string header = "a.cls" + std::string(95, '\0') + std::string("0000644\0", 8) +
                       std::string(16, '\0') + std::string("00000000001\0", 12) +
                       std::string(12, '\0') + "0003160" + std::string("\0", 1) + "0";
  header.resize(512, '\0');
  seeds.add("sample_files", "tar", header + "7" + std::string(511 + 1024, '\0'));
  seeds.add("sample_files", "csv", "name,\"a, b\"\nx,\"1\"\"2\"\r\n\ny,3\n");
  std::string npy = "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2), }";
  npy.resize(118, ' ');
  seeds.add("sample_files", "npy",
            std::string("\x93NUMPY\x01\0", 8) + raw(uint16_t{118}) + npy + "abcd");
}

void add_plan(Seeds& seeds) {
  plan::PlanInputs inputs;
  inputs.machine.usable_cores = 2;
  inputs.machine.available_bytes = int64_t{8} << 30;
  inputs.data = {.vocabulary = 65, .num_train_samples = 1000, .num_validation_samples = 100};
  inputs.kernels.gemm = plan::Gemm::kOneDnn;
  inputs.kernels.attention = plan::Attention::kMath;
  inputs.kernels.gemm_flops_per_second = 1e11;
  inputs.kernels.attention_flops_per_second = 1e10;
  seeds.add("plan", "default", plan::to_json(plan::make_plan(inputs).or_throw()));
}

void add_config(Seeds& seeds) {
  const auto defaults = plan::parse_config("", "job.toml");
  seeds.add("config", "all", plan::print_config(defaults));
  seeds.add("config", "wrong", "[model]\npreset = \"nan0\"\n[train]\nstpes = 10\nsplit = [1, 2]\n");
  seeds.add("config", "units", "[comm]\ndeadline = \"5m\"\nbucket_bytes = \"64MiB\"\n");
  seeds.add("override", "some", "train.steps=3\nmodel.preset=nano\ntrain.split=[0.5, 0.5]\nx=1");
}

void add_messages(Seeds& seeds) {
  seeds.add("control", "status",
            message(launch::status_message(std::byte{'E'}, base::timeout("rank 1 did not come"))));
  seeds.add("control", "announcement", launch::to_text({.rank = 1, .size = 4, .segment = 5}));
  seeds.add("json", "all",
            R"({"kind":"char","characters":"ab","n":[1,-2.5e3,true,null,"\u00e9"]})");
  seeds.add("vocabulary", "char", R"({"kind":"char","characters":"ab\u00e9"})");
  seeds.add("vocabulary", "byte", R"({"kind":"byte"})");
  seeds.add("vocabulary", "text", "\xE6\xB1\x89 a text \xC3\xA9\n");
  seeds.add("history", "four",
            "\x03{\"step\":1,\"loss\":4.5,\"step_seconds\":0.1,\"ranks\":2}\n"
            "{\"step\":1,\"validation_loss\":4}\n{\"step\":1,\"resumed\":true,\"ranks\":2}\n"
            "{\"step\":2,\"loss\":4,\"ranks\":2}\n{\"step\":4,\"lo");
  seeds.add("json", "rates", cost::to_json(cost::Rates{}));
  seeds.add("step_list", "flat", schedule::to_json(schedule::all_reduce_flat(2, 8)));
  seeds.add("step_list", "ring", schedule::to_json(schedule::all_reduce_ring(3, 8)));
  seeds.add("pipeline", "two", "0F0,0F1,0B0,0B1\n1F0,1I0,(1W0;1F1)OVERLAP_F_B,,1B1\n");
  seeds.add("step_list", "staged", schedule::to_json(schedule::all_reduce_staged(2, 8, 4)));
}

void add_costs(Seeds& seeds) {
  cost::StoredCosts stored{
      .stamp = {"a processor", 4, "6.1", "0.1.0", "near"}, .fitted_at = 1'700'000'000, .costs = {}};
  stored.costs.ranks = 2;
  stored.costs.corrections = {
      {schedule::Routine::kAllReduce, "direct", DType::kFloat32, true, {{1024, 1.5}, {4096, 0.5}}}};
  seeds.add("costs", "stored", cost::to_json(stored));
  seeds.add("costs", "fitted", cost::to_json(stored.costs));
}

void add_topology(Seeds& seeds) {
  topology::Graph host;
  const int machine = host.add({.id = "machine", .name = "machine a"}, -1);
  for (const char* id : {"0", "1"}) {
    const int package = host.add(
        {.id = std::string("package:") + id, .kind = topology::VertexKind::kPackage}, machine);
    host.add({.id = std::string("core:") + id,
              .kind = topology::VertexKind::kCore,
              .cpus = {id[0] - '0'}},
             package);
    host.add({.id = std::string("gpu:") + id,
              .kind = topology::VertexKind::kGpu,
              .bus_id = std::string("0000:0") + id + ":00.0"},
             package);
  }
  const std::string one = topology::graph_json(host, nullptr);
  seeds.add("topology", "one", one);
  seeds.add("topology", "two", "[" + one + "," + one + "]");
}

void add_observed(Seeds& seeds) {
  report::ObservedRun run{
      .steps = {{.step = 0, .parameters_sha256 = "ab"}, {.step = 1, .parameters_sha256 = "ab"}},
      .state_sha256 = "cd"};
  run.steps[1].digests = {{report::Quantity::kGradient, "w", 1},
                          {report::Quantity::kTotal, "loss", 2}};
  run.steps[1].backwards = {{{0, 0}, 3}, {{4, 0}, 5}};
  seeds.add("observed", "two", report::to_json(run));
}

void add_control_plane(Seeds& seeds) {
  using launch::Operation;
  const auto request = [](Operation operation, std::vector<std::string> texts, int64_t number = 0) {
    return launch::to_bytes(
        launch::Request{.operation = operation, .id = 1, .number = number, .texts = texts});
  };
  const std::string set = request(Operation::kSet, {"key", "value"});
  seeds.add("control_plane", "set", set);
  seeds.add("control_plane", "wait", request(Operation::kWait, {"a", "b"}));
  seeds.add("control_plane", "barrier", request(Operation::kBarrier, {"b"}, int64_t{2} << 32));
  seeds.add("control_plane", "cancel", request(Operation::kCancel, {}, 1));
  seeds.add("control_plane", "response", launch::to_bytes(launch::Response{1, Code::kOk, "value"}));
  seeds.add("control_plane", "frame", launch::seal_frame(base::Digest{}, 0, set));
  seeds.add("control_plane", "verdict", launch::to_json(launch::Verdict{1, 137, "rank 2"}));
  launch::HostsFile hosts{.server = {"::1", 29500}, .nodes = {launch::Node{"a", "::1", 0, 2}}};
  seeds.add("control_plane", "hosts", launch::to_json(hosts));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: hanji_fuzz_seeds DIR\n");
    return 2;
  }
  Seeds seeds(argv[1]);
  add_safetensors(seeds);
  add_manifest(seeds);
  add_tokens(seeds);
  add_beton(seeds, argv[1]);
  add_sample_files(seeds);
  add_config(seeds);
  add_plan(seeds);
  add_messages(seeds);
  add_control_plane(seeds);
  add_costs(seeds);
  add_topology(seeds);
  add_observed(seeds);
  return 0;
}
