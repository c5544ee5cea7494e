#include "hanji/train/speed_record.h"

#include "hanji/base/cache_folder.h"
#include "hanji/base/file.h"
#include "hanji/base/json.h"

namespace hanji::train {
namespace {

constexpr size_t kMaxRecords = 1000;

std::string key_of(const plan::Plan& plan) {
  return plan.job_hash + " " + std::string(name_of(plan.kernels.precision)) + " " +
         std::string(name_of(plan.config.compute.device)) + " " + std::to_string(plan.threads);
}

base::Json read_records(const std::filesystem::path& path) {
  const auto text = base::read_file(path);
  if (!text.ok()) return base::Json::object();
  auto json = base::parse_json(*text);
  const bool usable = json.ok() && json->is_object() && json->size() < kMaxRecords;
  return usable ? *std::move(json) : base::Json::object();
}

}  // namespace

std::optional<double> remember_speed(const plan::Plan& plan, double tokens_per_second) {
  const auto folder = base::cache_folder();
  if (!folder.ok() || !base::make_directories(*folder).ok()) return std::nullopt;
  const auto path = *folder / "speeds.json";
  base::Json records = read_records(path);
  base::Json& record = records[key_of(plan)];
  if (!record.is_object()) record = base::Json::object();
  record[std::to_string(plan.ranks)] = tokens_per_second;
  // A record for people; a run is not spoiled because it could not be kept.
  static_cast<void>(base::write_file_atomic(path, base::dump(records, 1)));
  const auto one = record.find("1");
  if (one == record.end() || !one->is_number()) return std::nullopt;
  return one->get<double>();
}

}  // namespace hanji::train
