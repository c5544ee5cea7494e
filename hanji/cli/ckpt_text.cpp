#include "hanji/cli/ckpt_text.h"

#include <fmt/format.h>

#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/units.h"
#include "hanji/checkpoint/hash.h"

namespace hanji::cli {
namespace {

using base::Json;
using checkpoint::Checkpoint;
using checkpoint::Difference;
using checkpoint::DifferenceKind;
using checkpoint::NamedTensor;

int64_t bytes_of(const Checkpoint& one) {
  return one.model.size_bytes() + one.optimizer.size_bytes();
}

Json member(const std::string& text, const char* name) {
  const auto json = base::parse_json(text);
  return json.ok() && json->is_object() && json->contains(name) ? (*json)[name] : Json();
}

std::string value_text(const Json& value) { return value.is_null() ? "-" : value.dump(); }

Json to_json(const NamedTensor& tensor, const char* file) {
  return {{"name", tensor.name},
          {"file", file},
          {"dtype", base::name_of(tensor.dtype)},
          {"shape", tensor.shape},
          {"bytes", tensor.bytes.size()}};
}

std::string lines_of(const std::vector<NamedTensor>& tensors) {
  std::string text;
  for (const NamedTensor& tensor : tensors) {
    text += fmt::format("  {:<44} {:<24} {:>10}\n", tensor.name,
                        checkpoint::describe(tensor.dtype, tensor.shape),
                        base::format_bytes(static_cast<int64_t>(tensor.bytes.size())));
  }
  return text;
}

}  // namespace

std::string list_text(const std::vector<Inspected>& all) {
  std::string text = fmt::format("{:<16} {:>12} {:>10} {:>10}  {}\n", "checkpoint", "samples",
                                 "bytes", "validation", "state");
  for (const auto& [name, is_latest, content] : all) {
    if (!content.ok()) {
      text += fmt::format("{:<16} {:>12} {:>10} {:>10}  damaged: {}\n", name, "-", "-", "-",
                          content.status().message());
      continue;
    }
    const checkpoint::Manifest& manifest = content->manifest;
    text += fmt::format(
        "{:<16} {:>12} {:>10} {:>10}  good{}\n", name, manifest.num_samples,
        base::format_bytes(bytes_of(*content)),
        manifest.validation_loss ? fmt::format("{:.4f}", *manifest.validation_loss) : "-",
        is_latest ? ", latest" : "");
  }
  return text;
}

std::string list_json(const std::vector<Inspected>& all) {
  Json json = Json::array();
  for (const auto& [name, is_latest, content] : all) {
    Json one = {{"name", name}, {"good", content.ok()}, {"latest", is_latest}};
    if (content.ok()) {
      one["step"] = content->manifest.step;
      one["samples"] = content->manifest.num_samples;
      one["bytes"] = bytes_of(*content);
      one["validation_loss"] =
          content->manifest.validation_loss ? Json(*content->manifest.validation_loss) : Json();
    } else {
      one["error"] = content.status().message();
    }
    json.push_back(std::move(one));
  }
  return json.dump(2) + "\n";
}

std::string show_text(const Checkpoint& one) {
  const checkpoint::Manifest& manifest = one.manifest;
  const Json config = member(manifest.plan, "config");
  std::string text = fmt::format("{}\n", one.path.string());
  const auto line = [&text](const char* name, const std::string& value) {
    text += fmt::format("  {:<16} {}\n", name, value);
  };
  line("step", std::to_string(manifest.step));
  line("samples", std::to_string(manifest.num_samples));
  if (manifest.validation_loss)
    line("validation loss", fmt::format("{}", *manifest.validation_loss));
  line("ranks", value_text(member(manifest.plan, "ranks")));
  line("seed", value_text(member(manifest.job, "seed")));
  line("grain", value_text(member(manifest.job, "grain")));
  line("model", config.is_null() ? "-" : value_text(config.value("model", Json())));
  line("written by", manifest.writer);
  line("params_sha256", checkpoint::state_hash(one.model.tensors(), {}));
  line("state_sha256", checkpoint::state_hash(one.model.tensors(), one.optimizer.tensors()));
  text += fmt::format("model: {} tensors, {}\n", one.model.tensors().size(),
                      base::format_bytes(one.model.size_bytes()));
  text += lines_of(one.model.tensors());
  return text + fmt::format("optimizer: {} tensors, {}\n", one.optimizer.tensors().size(),
                            base::format_bytes(one.optimizer.size_bytes()));
}

std::string show_json(const Checkpoint& one) {
  const checkpoint::Manifest& manifest = one.manifest;
  Json json = {{"path", one.path.string()},
               {"step", manifest.step},
               {"samples", manifest.num_samples},
               {"writer", manifest.writer}};
  json["validation_loss"] = manifest.validation_loss ? Json(*manifest.validation_loss) : Json();
  json["params_sha256"] = checkpoint::state_hash(one.model.tensors(), {});
  json["state_sha256"] = checkpoint::state_hash(one.model.tensors(), one.optimizer.tensors());
  json["tensors"] = Json::array();
  for (const NamedTensor& tensor : one.model.tensors()) {
    json["tensors"].push_back(to_json(tensor, "model"));
  }
  for (const NamedTensor& tensor : one.optimizer.tensors()) {
    json["tensors"].push_back(to_json(tensor, "optimizer"));
  }
  json["job"] = base::parse_json(manifest.job).or_throw();
  json["plan"] = base::parse_json(manifest.plan).or_throw();
  return json.dump(2) + "\n";
}

std::string diff_text(const std::vector<Difference>& differences) {
  if (differences.empty()) return "no difference: every tensor is the same, bit for bit\n";
  std::string text;
  for (const Difference& one : differences) {
    text += fmt::format("{:<44} {}", one.tensor, name_of(one.kind));
    if (one.kind == DifferenceKind::kValues) {
      text += fmt::format(": {} elements, the first at {}, at most {:.3g} apart ({:.3g} ulps)",
                          one.num_elements, one.first_element, one.largest, one.largest_ulps);
    }
    text += "\n";
  }
  return text + fmt::format("{} tensor{} differ\n", differences.size(),
                            differences.size() == 1 ? "" : "s");
}

std::string diff_json(const std::vector<Difference>& differences) {
  Json json = Json::array();
  for (const Difference& one : differences) {
    Json line = {{"tensor", one.tensor}, {"kind", name_of(one.kind)}};
    if (one.kind == DifferenceKind::kValues) {
      line["elements"] = one.num_elements;
      line["first_element"] = one.first_element;
      const bool finite = std::isfinite(one.largest);
      line["largest"] = finite ? Json(one.largest) : Json();
      line["largest_ulps"] = finite ? Json(one.largest_ulps) : Json();
    }
    json.push_back(std::move(line));
  }
  return json.dump(2) + "\n";
}

}  // namespace hanji::cli
