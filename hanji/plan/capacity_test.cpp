#include "hanji/plan/capacity.h"

#include <gmock/gmock.h>

#include "hanji/base/json.h"
#include "hanji/plan/cheapest_changes.h"
#include "hanji/topology/nominal.h"

namespace hanji::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

NamedModel found(const char* model, const FactsOptions& options = {}) {
  return find_model(model, options).or_throw();
}

CapacityQuery query_of(const char* model, const char* device, int ranks) {
  CapacityQuery query;
  query.device = find_device(device).or_throw();
  query.model = found(model, facts_options(query.device, query.widths));
  query.ranks = {.ranks = ranks, .hybrid_ranks = std::min(ranks, 8)};
  return query;
}

int64_t rank_bytes(const std::vector<MemoryLine>& lines, const std::string& category) {
  for (const MemoryLine& line : lines) {
    if (line.category == category) return line.bytes;
  }
  ADD_FAILURE() << "no " << category;
  return 0;
}

TEST(FindModel, HasAboutAsManyParametersAsItsName) {
  for (const char* name :
       {"gpt:10M", "gpt:124M", "gpt:1.3B", "gpt:7B", "gpt:7.5B", "gpt:175B", "gpt:1T"}) {
    const NamedModel model = found(name);
    EXPECT_NEAR(static_cast<double>(model.facts.num_parameters()) / model.num_parameters, 1, 0.01)
        << name;
  }
  EXPECT_EQ(found("gpt2").num_parameters, found("gpt2").facts.num_parameters());
}

TEST(FindModel, RefusesOtherWords) {
  EXPECT_THAT(find_model("llama", {}).status().message(), HasSubstr("presets"));
  for (const char* name :
       {"gpt:", "gpt:B", "gpt:7", "gpt:7X", "gpt:-7B", "gpt:nanB", "gpt:1e30T"}) {
    EXPECT_THAT(find_model(name, {}).status().message(), HasSubstr("gpt:124M")) << name;
  }
}

TEST(FindModel, TakesOtherSizesOfAPresetAndAnotherBlockOfAnyGpt) {
  const auto block = [](const char* name, int64_t tokens) {
    return find_model(name, {}, {.block = tokens}).or_throw().facts.targets_per_sample;
  };
  EXPECT_EQ(block("gpt:7B", 512), 512);
  EXPECT_EQ(block("gpt2", 256), 256);
  EXPECT_EQ(block("gpt2", kAuto), 1024);
  EXPECT_EQ(find_model("nano", {}, {.layers = 7}).or_throw().facts.layers.size(), 1 + 7 + 1u);
  EXPECT_THAT(find_model("gpt2", {}, {.block = 0}).status().message(), HasSubstr("--block 0"));
}

TEST(FindDevice, KnowsNamesAndTakesBytes) {
  EXPECT_EQ(find_device("h100-80").or_throw().memory_bytes, 80'000'000'000);
  EXPECT_FALSE(find_device("h100-80").or_throw().source.empty());
  EXPECT_EQ(find_device("16GiB").or_throw().memory_bytes, int64_t{16} << 30);
  EXPECT_TRUE(find_device("cpu-64GB").or_throw().shares_host);
  EXPECT_THAT(find_device("h1000").status().message(), HasSubstr("h100-80"));
  EXPECT_THAT(find_device("h100").status().message(), HasSubstr("; did you mean h100-80?"));
  EXPECT_THAT(devices_named("h10").status().message(), HasSubstr("; did you mean h100?"));
}

TEST(Devices, LinksOfTheTableAreTheNominalOnes) {
  for (const DeviceSpec& device : known_devices()) {
    if (device.links.nvlink == 0) continue;
    const std::string prefix = device.links.peers + " x";
    bool is_found = false;
    for (const topology::NominalLink& link : topology::nominal_links()) {
      if (!link.name.starts_with(prefix)) continue;
      EXPECT_DOUBLE_EQ(link.bytes_per_second, device.link_rate) << device.name;
      is_found = true;
    }
    EXPECT_TRUE(is_found) << device.name << ": " << prefix;
  }
}

TEST(Devices, TheRateComputedWithIsTheMeasuredOneOrAPartOfThePeak) {
  for (const DeviceSpec& device : known_devices()) {
    for (const DeviceRate& rate : device.rates) {
      if (rate.dtype != "bf16" && rate.dtype != "fp16") continue;
      const bool is_measured = rate.measured_flops > 0;
      EXPECT_NEAR(device.flops, is_measured ? rate.measured_flops : 0.8 * rate.peak_flops,
                  0.002 * rate.peak_flops)
          << device.name;
    }
  }
}

TEST(Capacity, SevenBillionDoNotFitOneH100AndItSaysWhatWould) {
  const CapacityQuery query = query_of("gpt:7B", "h100-80", 1);
  const Capacity ddp = capacity_of(query, Sharding::kReplicas);
  EXPECT_FALSE(ddp.fits);
  EXPECT_EQ(rank_bytes(ddp.rank, "parameters") + rank_bytes(ddp.rank, "gradients") +
                rank_bytes(ddp.rank, "optimizer"),
            112'000'000'000);
  const auto changes = cheapest_changes(query);
  ASSERT_EQ(changes.size(), 3u);
  for (const Change& change : changes) {
    EXPECT_TRUE(capacity_of(change.query, change.sharding).fits) << change.words;
    EXPECT_EQ(change.query.ranks.ranks, 2) << change.words;
    EXPECT_NE(change.sharding, Sharding::kHybrid) << "one group of two is zero3";
  }
  const std::string text = describe(query);
  EXPECT_THAT(text, AllOf(HasSubstr("112 GB = 16 bytes"), HasSubstr("states only"), HasSubstr("no"),
                          HasSubstr("more than the 80.00 GB there are"), HasSubstr("3. "),
                          HasSubstr("must")));
}

TEST(Capacity, TellsWhatIsLeftOfTheStatesOfZerosExample) {
  EXPECT_THAT(describe(query_of("gpt:7.5B", "a100-80", 64)),
              HasSubstr("cut among 64 ranks: zero1 31.41, zero2 16.64, zero3 1.88 GB each"));
}

TEST(Capacity, ChangesAreByWholeHostsAndThreeEvenWhereFewStrategiesEverFit) {
  const auto changes = cheapest_changes(query_of("gpt:70B", "h100-80", 8));
  ASSERT_EQ(changes.size(), 3u);
  // 1120 GB of states over 24 ranks are 47 GB each; over 16 they are 70 and the units do not fit.
  EXPECT_EQ(changes[0].words, "24 ranks with zero3, recompute");
  EXPECT_EQ(changes[1].words, "56 ranks with zero3") << "activations are 48 GB";
  EXPECT_EQ(changes[2].words, "8 ranks with zero3 on mi325x-256");
  EXPECT_THAT(changes[2].price, HasSubstr("devices of 256 GB"));
  for (const Change& change : changes) {
    EXPECT_TRUE(capacity_of(change.query, change.sharding).fits) << change.words;
  }
}

TEST(Capacity, OnFewerDevicesNothingWouldHaveFitted) {
  for (const Change& change : cheapest_changes(query_of("gpt:30B", "a100-40", 1))) {
    CapacityQuery half = change.query;
    half.ranks.ranks /= 2;
    half.ranks.hybrid_ranks = std::min(half.ranks.ranks, 8);
    half.micro_batch = 1;
    EXPECT_FALSE(capacity_of(half, change.sharding).fits) << change.words;
  }
}

TEST(Capacity, BuffersBelongToTheStrategiesThatNeedThem) {
  const CapacityQuery query = query_of("gpt:7B", "h100-80", 16);
  const double block = 12.0 * 4096 * 4096;
  const auto of = [&](Sharding sharding, const char* category) {
    return rank_bytes(capacity_of(query, sharding).rank, category);
  };
  EXPECT_EQ(of(Sharding::kReplicas, "buckets"), 0);
  EXPECT_EQ(of(Sharding::kZero1, "unsharded units"), 0);
  EXPECT_EQ(of(Sharding::kZero2, "buckets"), 2 * query.bucket_bytes);
  EXPECT_GE(static_cast<double>(of(Sharding::kZero3, "unsharded units")), 2 * 2 * block);
  EXPECT_EQ(of(Sharding::kZero3, "buckets"), of(Sharding::kZero3, "unsharded units"));
  EXPECT_EQ(of(Sharding::kReplicas, "staging"), query.bucket_bytes) << "16 ranks are two hosts";
}

/// Parameters lie once in the memory of a host: no rank gathers them and none has its own.
TEST(Capacity, RanksOfACpuShareTheirHost) {
  CapacityQuery query = query_of("gpt:124M", "cpu-64GB", 4);
  query.widths = kFloat32Adam;
  const double parameters = 124e6;
  const Capacity ddp = capacity_of(query, Sharding::kReplicas);
  EXPECT_EQ(rank_bytes(ddp.host, "parameters"), 4 * 4 * 124'000'000);
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    const Capacity one = capacity_of(query, sharding);
    EXPECT_NEAR(static_cast<double>(rank_bytes(one.host, "parameters")), 4 * parameters, 8);
    EXPECT_EQ(rank_bytes(one.rank, "unsharded units"), 0);
  }
  query.ranks_per_host = 2;
  EXPECT_GT(rank_bytes(capacity_of(query, Sharding::kZero3).rank, "unsharded units"), 0);
}

TEST(Capacity, CheckpointingKeepsInputsOfBlocks) {
  CapacityQuery query = query_of("gpt:7B", "h100-80", 1);
  const int64_t plain = rank_bytes(capacity_of(query, Sharding::kZero1).rank, "activations");
  query.recompute = true;
  const int64_t less = rank_bytes(capacity_of(query, Sharding::kZero1).rank, "activations");
  EXPECT_LT(less, plain / 4);
  EXPECT_GT(less, int64_t{32} * 2048 * 4096 * 4);
}

/// Embeddings, three layers of which the second and third are largest neighbours, and a buffer.
CountedModel counted_model() {
  CountedModel model;
  model.facts = {.layers = {{.name = "layer 0", .kept = {4, 4000}, .flow = {0, 400}},
                            {.name = "layer 1", .products = {{3, 5, 7}}, .kept = {0, 8000}},
                            {.name = "layer 2", .kept = {0, 40}, .backward = {0, 400}}},
                 .parameters = {{100, 0}, {3'000'000, 1}, {1'000'000, 2}},
                 .sample_bytes = 96,
                 .buffer_bytes = 12};
  model.recomputed = model.facts;
  model.recomputed.layers[1].kept = {0, 400};
  return model;
}

TEST(Capacity, OfACountedModelIsASumOverItsLayers) {
  CapacityQuery query{.model = named("net", counted_model(), Precision::kFloat32),
                      .device = find_device("1GB").or_throw(),
                      .ranks = {.ranks = 4, .hybrid_ranks = 4},
                      .widths = kFloat32Adam};
  query.micro_batch = 3;
  const auto of = [&](Sharding sharding, const char* category) {
    return rank_bytes(capacity_of(query, sharding).rank, category);
  };
  EXPECT_EQ(of(Sharding::kReplicas, "optimizer"), 8 * 4'000'100);
  EXPECT_EQ(of(Sharding::kReplicas, "activations"), 4 + 3 * (12040 + 400 + 96) + 12);
  EXPECT_EQ(of(Sharding::kZero3, "unsharded units"), 4 * 4'000'000);
  query.recompute = true;
  EXPECT_EQ(of(Sharding::kReplicas, "activations"), 4 + 3 * (4440 + 400 + 96) + 12);
  query.micro_batch = int64_t{1} << 50;
  EXPECT_THAT(check(query).message(), HasSubstr("--micro-batch 1125899906842624 keeps"));
}

TEST(Capacity, BytesOfACountedModelFollowTheWidthOfItsNumbers) {
  const NamedModel half = named("net", counted_model(), Precision::kBFloat16);
  EXPECT_EQ(half.facts.layers[0].kept, (Amount{2, 2000}));
  EXPECT_EQ(half.facts.buffer_bytes, 12);
  EXPECT_THAT(half.sizes, HasSubstr("x 2/4 for bf16"));
}

TEST(CountedModelFile, HoldsTheWholeModel) {
  const CountedModel model = counted_model();
  const CountedModel again = counted_model_from_json(to_json(model)).or_throw();
  EXPECT_EQ(again.precision, model.precision);
  EXPECT_EQ(again.facts, model.facts);
  EXPECT_EQ(again.recomputed, model.recomputed);
}

TEST(CountedModelFile, NamesEveryMemberThatIsWrong) {
  auto json = base::Json::parse(to_json(counted_model()));
  json["precision"] = "fp12";
  json["facts"]["layers"][1].erase("kept");
  json["facts"]["parameters"][0] = {100, 3};
  json["facts"]["layers"][2]["backward"] = {0, 1e300};
  json["recomputed"]["more"] = 1;
  const Status status = counted_model_from_json(json.dump()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("fp12"), HasSubstr("layers[1].kept is missing"),
                    HasSubstr("layer 3, but there are 3 layers"), HasSubstr("layers[2].backward"),
                    HasSubstr("recomputed.more is not a member"),
                    HasSubstr("recomputed has other parameters")));
  EXPECT_THAT(counted_model_from_json("{}").status().message(),
              AllOf(HasSubstr("format is missing"), HasSubstr("facts is missing")));
  EXPECT_THAT(counted_model_from_json("[3]").status().message(), "model is not an object");
}

TEST(Capacity, SaysAllMistakesAtOnce) {
  CapacityQuery query = query_of("gpt2", "h100-80", 6);
  query.ranks.hybrid_ranks = 4;
  query.micro_batch = 0;
  EXPECT_THAT(check(query).message(),
              AllOf(HasSubstr("groups of --fsdp 4"), HasSubstr("--micro-batch 0")));
}

TEST(Capacity, TextStaysWithin80ColumnsAndJsonHasTheSameBytes) {
  const CapacityQuery query = query_of("gpt:1T", "h100-80", 1024);
  std::string text = describe(query) + describe(query_of("gpt:70B", "h100-80", 8));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  const auto json = base::Json::parse(to_json(query));
  EXPECT_EQ(json["strategies"]["zero3"]["rank"]["total"].get<int64_t>(),
            total_bytes(capacity_of(query, Sharding::kZero3).rank));
  EXPECT_EQ(json["states_bytes"].get<int64_t>(), 16'000'000'000'000);
}

}  // namespace
}  // namespace hanji::plan
