#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "hanji/base/file.h"
#include "hanji/base/json.h"
#include "hanji/cli/exercises/facts.h"
#include "hanji/data/beton_file.h"
#include "hanji/report/compare_runs.h"
#include "hanji/report/run_records.h"
#include "hanji/report/step_parts.h"

namespace hanji::cli {
namespace {

namespace fs = std::filesystem;

/// Keys that are decided by a measurement at each start, or name a folder.
bool is_decided(const std::string& key) {
  constexpr std::array<std::string_view, 5> kDecided = {"compute.gemm", "compute.attention",
                                                        "data.workers", "data.prefetch", "run.out"};
  return key.find('.') == std::string::npos || std::ranges::find(kDecided, key) != kDecided.end();
}

Result<report::RunRecords> read_ended_run(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(report::RunRecords run, report::read_run(folder));
  if (run.summary.empty()) {
    return base::not_found(fmt::format(
        "{}: no summary.json: the run has not ended; rm -r {}, and run the script again",
        folder.string(), folder.filename().string()));
  }
  return run;
}

double measured_line(const base::Json& summary, const std::string& line) {
  const base::Json& prediction = summary.at("prediction");
  const auto found = prediction.find(line);
  return found == prediction.end() || !found->at("measured").is_number()
             ? 0
             : found->at("measured").get<double>();
}

struct MeanStep {
  double seconds = 0, exposed = 0;
};
Result<MeanStep> mean_step(const report::RunRecords& run) {
  const auto parts = report::mean_parts(run);
  if (parts.empty()) return base::not_found(run.folder.string() + ": " + report::why_no_lines(run));
  MeanStep mean;
  for (const report::StepParts& part : parts) {
    mean.seconds += part.seconds / static_cast<double>(parts.size());
    mean.exposed += part.exposed_transfer / static_cast<double>(parts.size());
  }
  return mean;
}

void read_folder(const fs::path& photos, ImagesFacts& facts) {
  const auto files = base::list_files(photos, base::Recurse::kYes);
  if (!files.ok()) return;
  std::set<fs::path> classes;
  for (const fs::path& file : *files) classes.insert(file.parent_path());
  facts.folder_images = static_cast<int64_t>(files->size());
  facts.folder_classes = static_cast<int64_t>(classes.size());
}

void read_samples(const fs::path& path, ImagesFacts& facts) {
  const auto file = data::BetonFile::open(path);
  if (!file.ok()) {
    facts.file_mistakes.push_back(file.status().message());
    return;
  }
  facts.file_samples = static_cast<int64_t>(file->num_samples());
  file->verify(
      [&](const data::BetonMistake& mistake) { facts.file_mistakes.push_back(mistake.message); },
      {});
}

}  // namespace

Result<HybridFacts> read_hybrid_facts(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const report::RunRecords run, read_ended_run(folder / "run"));
  HANJI_ASSIGN_OR_RETURN(const base::Json summary, base::parse_json(run.summary));
  HybridFacts facts;
  facts.strategy = plan::name_of(run.plan.config.parallel.data);
  facts.shares_memory = run.plan.config.parallel.share_memory;
  facts.ranks = run.plan.ranks;
  facts.dp = run.plan.mesh.degree("dp");
  facts.fsdp = run.plan.mesh.degree("fsdp");
  facts.parameter_bytes = measured_line(summary, "memory.parameters");
  facts.optimizer_bytes = measured_line(summary, "memory.optimizer");
  facts.wire_bytes = measured_line(summary, "wire_bytes_per_step");
  return facts;
}

Result<OverheadFacts> read_overhead_facts(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const report::RunRecords before, read_ended_run(folder / "before"));
  HANJI_ASSIGN_OR_RETURN(const report::RunRecords after, read_ended_run(folder / "after"));
  HANJI_ASSIGN_OR_RETURN(const MeanStep first, mean_step(before));
  HANJI_ASSIGN_OR_RETURN(const MeanStep second, mean_step(after));
  OverheadFacts facts{.step_seconds = first.seconds,
                      .exposed_seconds = first.exposed,
                      .exposed_after = second.exposed,
                      .engine = std::string(plan::name_of(before.plan.config.comm.engine)),
                      .changed_keys = {},
                      .after = after.plan.config};
  for (const auto& change : report::configuration_changes(before.plan, after.plan)) {
    if (!is_decided(change.key)) facts.changed_keys.push_back(change.key);
  }
  return facts;
}

Result<ImagesFacts> read_images_facts(const fs::path& folder) {
  HANJI_ASSIGN_OR_RETURN(const report::RunRecords run, read_ended_run(folder / "run"));
  HANJI_ASSIGN_OR_RETURN(const base::Json summary, base::parse_json(run.summary));
  ImagesFacts facts;
  read_folder(folder / "photos", facts);
  read_samples(folder / "photos.beton", facts);
  const std::string& learned = run.plan.config.data.files;
  facts.trained_on = learned.empty() ? "data of its own" : learned;
  facts.trained_on_file =
      !learned.empty() && fs::path(learned).filename() == "photos.beton" &&
      fs::weakly_canonical(folder / learned) == fs::weakly_canonical(folder / "photos.beton");
  facts.train_samples = run.plan.data.num_train_samples;
  facts.global_batch = run.plan.config.train.global_batch;
  facts.validation_loss = summary.at("validation_loss").get<double>();
  return facts;
}

}  // namespace hanji::cli
