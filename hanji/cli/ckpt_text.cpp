#include "hanji/cli/ckpt_text.h"

#include <fmt/format.h>

#include <cmath>

#include "hanji/base/json.h"
#include "hanji/base/text_table.h"
#include "hanji/base/units.h"
#include "hanji/checkpoint/hash.h"

namespace hanji::cli {
namespace {

using base::Json;
using checkpoint::Checkpoint;
using checkpoint::Difference;
using checkpoint::DifferenceKind;
using checkpoint::ForeignTensor;
using checkpoint::SavedTensor;

int64_t bytes_of(const Checkpoint& one) {
  int64_t bytes = 0;
  for (const auto& file : one.files) bytes += file.size_bytes();
  return bytes;
}

int64_t bytes_of(const std::vector<SavedTensor>& tensors) {
  int64_t bytes = 0;
  for (const SavedTensor& tensor : tensors) bytes += tensor.num_bytes();
  return bytes;
}

Json to_json(const checkpoint::FileRecord& file) {
  return {{"name", file.name},
          {"bytes", file.size_bytes},
          {"rank", file.writer.rank},
          {"coordinates", file.writer.coordinates}};
}

/// "rank 3, dp 1, fsdp 1".
std::string describe(const checkpoint::WriterRecord& writer) {
  std::string text = fmt::format("rank {}", writer.rank);
  for (const auto& [axis, coordinate] : writer.coordinates) {
    text += fmt::format(", {} {}", axis, coordinate);
  }
  return text;
}

Json member(const std::string& text, const char* name) {
  const auto json = base::parse_json(text);
  return json.ok() && json->is_object() && json->contains(name) ? (*json)[name] : Json();
}

std::string value_text(const Json& value) { return value.is_null() ? "-" : base::dump(value); }

Json to_json(const SavedTensor& tensor, const char* kind) {
  return {{"name", tensor.name},
          {"file", kind},
          {"dtype", base::name_of(tensor.dtype)},
          {"shape", tensor.shape},
          {"bytes", tensor.num_bytes()}};
}

std::string lines_of(const std::vector<SavedTensor>& tensors, int columns) {
  using enum base::TextTable::Align;
  base::TextTable table({{"", kLeft}, {"", kLeft}, {}}, 2);
  for (const SavedTensor& tensor : tensors) {
    table.add({tensor.name, checkpoint::describe(tensor.dtype, tensor.shape),
               base::format_bytes(tensor.num_bytes())});
  }
  return table.text(columns);
}

}  // namespace

std::string list_text(const std::vector<Inspected>& all, int columns) {
  using enum base::TextTable::Align;
  base::TextTable table(
      {{"checkpoint", kLeft}, {"samples"}, {"bytes"}, {"validation"}, {"state", kLeft}});
  for (const auto& [name, is_latest, content] : all) {
    if (!content.ok()) {
      table.add({name, "-", "-", "-", "damaged: " + content.status().message()});
      continue;
    }
    const checkpoint::Manifest& manifest = content->manifest;
    table.add({name, std::to_string(manifest.num_samples), base::format_bytes(bytes_of(*content)),
               manifest.validation_loss ? fmt::format("{:.4f}", *manifest.validation_loss) : "-",
               is_latest ? "good, latest" : "good"});
  }
  return table.text(columns);
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
  return base::dump(json, 2) + "\n";
}

std::string show_text(const Checkpoint& one, int columns) {
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
  const auto hashes = checkpoint::state_hashes(one.model, one.optimizer);
  line("params_sha256", hashes.parameters);
  line("state_sha256", hashes.state);
  for (const checkpoint::FileRecord& file : manifest.files) {
    if (one.files.size() > 2) line(file.name.c_str(), describe(file.writer));
  }
  text += fmt::format("model: {}, {}\n", base::counted(one.model.size(), "tensor"),
                      base::format_bytes(bytes_of(one.model)));
  text += lines_of(one.model, columns);
  return text + fmt::format("optimizer: {}, {}\n", base::counted(one.optimizer.size(), "tensor"),
                            base::format_bytes(bytes_of(one.optimizer)));
}

std::string show_json(const Checkpoint& one) {
  const checkpoint::Manifest& manifest = one.manifest;
  Json json = {{"path", one.path.string()},
               {"step", manifest.step},
               {"samples", manifest.num_samples},
               {"writer", manifest.writer}};
  json["validation_loss"] = manifest.validation_loss ? Json(*manifest.validation_loss) : Json();
  const auto hashes = checkpoint::state_hashes(one.model, one.optimizer);
  json["params_sha256"] = hashes.parameters;
  json["state_sha256"] = hashes.state;
  json["files"] = Json::array();
  for (const auto& file : manifest.files) json["files"].push_back(to_json(file));
  json["tensors"] = Json::array();
  for (const SavedTensor& tensor : one.model) json["tensors"].push_back(to_json(tensor, "model"));
  for (const SavedTensor& tensor : one.optimizer) {
    json["tensors"].push_back(to_json(tensor, "optimizer"));
  }
  json["job"] = base::parse_json(manifest.job).or_throw();
  json["plan"] = base::parse_json(manifest.plan).or_throw();
  return base::dump(json, 2) + "\n";
}

std::string show_file_text(const std::string& path, const checkpoint::SafetensorsFile& file,
                           int columns) {
  std::string text = path + "\n";
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with("xxh3.")) text += fmt::format("  {:<16} {}\n", key, value);
  }
  const size_t count = file.tensors().size() + file.foreign().size();
  text += fmt::format("{}, {}\n", base::counted(static_cast<int64_t>(count), "tensor"),
                      base::format_bytes(file.size_bytes()));
  text += lines_of(checkpoint::in_one_run(file.tensors()), columns);
  using enum base::TextTable::Align;
  base::TextTable unread({{"", kLeft}, {"", kLeft}, {}, {"", kLeft}}, 2);
  for (const ForeignTensor& tensor : file.foreign()) {
    unread.add({tensor.name, checkpoint::describe(tensor),
                base::format_bytes(std::ssize(tensor.bytes)),
                "of a type that hanji does not read"});
  }
  return text + unread.text(columns);
}

std::string show_file_json(const std::string& path, const checkpoint::SafetensorsFile& file) {
  Json json = {{"path", path}, {"bytes", file.size_bytes()}, {"metadata", file.metadata()}};
  json["tensors"] = Json::array();
  for (const SavedTensor& tensor : checkpoint::in_one_run(file.tensors())) {
    json["tensors"].push_back(to_json(tensor, "model"));
    json["tensors"].back().erase("file");
    json["tensors"].back()["read"] = true;
  }
  for (const ForeignTensor& tensor : file.foreign()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", tensor.type},
                               {"shape", tensor.shape},
                               {"bytes", tensor.bytes.size()},
                               {"read", false}});
  }
  return base::dump(json, 2) + "\n";
}

std::string diff_text(const std::vector<Difference>& differences) {
  if (differences.empty()) return "no difference: every tensor is the same, bit for bit\n";
  std::string text;
  for (const Difference& one : differences) {
    text += fmt::format("{:<44} {}", one.tensor, name_of(one.kind));
    if (one.kind == DifferenceKind::kValues) {
      text +=
          fmt::format(": {}, the first at {}, at most {:.3g} apart",
                      base::counted(one.num_elements, "element"), one.first_element, one.largest);
      // Integers have none.
      if (one.largest_ulps != 0) text += fmt::format(" ({:.3g} ulps)", one.largest_ulps);
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
  return base::dump(json, 2) + "\n";
}

}  // namespace hanji::cli
