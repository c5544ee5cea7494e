#include "hanji/train/state.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "hanji/base/json.h"
#include "hanji/base/version.h"
#include "hanji/comm/dtype.h"
#include "hanji/data/source.h"
#include "hanji/layers/model.h"

namespace hanji::train {
namespace {

using checkpoint::TensorEntry;

/// The memory of a dense tensor, wherever it lies.
at::Tensor memory_of(const at::Tensor& tensor) {
  return tensor.detach().view({-1}).view(at::kByte);
}

/// A tensor of a job's state, and those of its elements that are meant.
struct Piece {
  TensorEntry entry;
  layout::Range elements;
};
struct Pieces {
  std::vector<Piece> model, optimizer;
};

/// What of `ranges` lies in [begin, begin + size), from there on.
std::vector<layout::Range> within(const std::vector<layout::Range>& ranges, int64_t begin,
                                  int64_t size) {
  std::vector<layout::Range> found;
  for (const layout::Range range : ranges) {
    const layout::Range common{std::max(range.begin, begin) - begin,
                               std::min(range.end, begin + size) - begin};
    if (!common.empty()) found.push_back(common);
  }
  return found;
}

struct FlatRanges {
  const std::vector<layout::Range>& parameters;
  const std::vector<layout::Range>& moments;
};

/// The pieces of parameters and moments, without buffers and the number of updates.
Pieces pieces_of(const JobView& view, const layout::FlatLayout& layout, const FlatRanges& ranges) {
  const size_t num_parameters = view.parameters.size();
  const size_t num_moments = (view.optimizer.size() - 1) / num_parameters;
  Pieces pieces;
  for (size_t i = 0; i < num_parameters; ++i) {
    for (const layout::Range elements :
         within(ranges.parameters, layout.offsets[i], layout.sizes[i])) {
      pieces.model.push_back({view.parameters[i], elements});
    }
    for (const layout::Range elements :
         within(ranges.moments, layout.offsets[i], layout.sizes[i])) {
      for (size_t k = 0; k < num_moments; ++k) {
        pieces.optimizer.push_back({view.optimizer[1 + i * num_moments + k], elements});
      }
    }
  }
  return pieces;
}

/// What every rank has for itself.
void add_rest(const JobView& view, Pieces& pieces) {
  for (const TensorEntry& entry : view.buffers) {
    pieces.model.push_back({entry, {0, entry.tensor.numel()}});
  }
  pieces.optimizer.push_back({view.optimizer.front(), {0, 1}});
}

checkpoint::StatePart part_of(const Piece& piece) {
  const auto& [name, tensor] = piece.entry;
  const auto width = static_cast<int64_t>(tensor.element_size());
  const at::Tensor bytes =
      memory_of(tensor).narrow(0, piece.elements.begin * width, piece.elements.size() * width);
  const auto read = [bytes](int64_t first, std::span<std::byte> to) {
    if (bytes.is_cpu()) {  // without libtorch's threads, which belong to the training
      std::memcpy(to.data(), bytes.const_data_ptr<uint8_t>() + first, to.size());
    } else {
      at::from_blob(to.data(), std::ssize(to), at::kByte)
          .copy_(bytes.narrow(0, first, std::ssize(to)));
    }
  };
  return {name, comm::to_dtype(tensor.scalar_type()), tensor.sizes().vec(), piece.elements, read};
}

std::vector<checkpoint::StatePart> parts_of(const std::vector<Piece>& pieces) {
  std::vector<checkpoint::StatePart> parts;
  for (const Piece& piece : pieces) parts.push_back(part_of(piece));
  return parts;
}

void add_group(checkpoint::StateHash& hash, std::vector<TensorEntry> entries) {
  std::ranges::sort(entries, {}, &TensorEntry::name);
  hash.begin_group(entries.size());
  for (const auto& [name, tensor] : entries) {
    hash.begin_tensor(name, comm::to_dtype(tensor.scalar_type()), tensor.sizes().vec());
    const at::Tensor here = tensor.detach().cpu();
    hash.add({static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes()});
  }
}

Status check_forms(const std::vector<checkpoint::SavedTensor>& saved,
                   const std::vector<TensorEntry>& entries) {
  std::vector<checkpoint::TensorForm> forms;
  for (const auto& [name, tensor] : entries) {
    forms.push_back({name, comm::to_dtype(tensor.scalar_type()), tensor.sizes().vec()});
  }
  return checkpoint::check_forms(saved, forms);
}

void fill(const std::vector<Piece>& pieces, const std::vector<checkpoint::SavedTensor>& saved) {
  for (const auto& [entry, elements] : pieces) {
    const auto width = static_cast<int64_t>(entry.tensor.element_size());
    const at::Tensor to =
        memory_of(entry.tensor).narrow(0, elements.begin * width, elements.size() * width);
    const auto from = std::ranges::find(saved, entry.name, &checkpoint::SavedTensor::name);
    checkpoint::for_each_run(*from, elements, [&](int64_t first, std::span<const std::byte> run) {
      to.narrow(0, first * width, std::ssize(run))
          .copy_(at::from_blob(const_cast<std::byte*>(run.data()), std::ssize(run), at::kByte));
    });
  }
}

}  // namespace

JobView view_of(const Job& job) { return view_of(*job.model, job.strategy->state()); }

JobView view_with_gradients(const Job& job) {
  FlatState state = job.strategy->state();
  state.gradients = job.strategy->gradients();
  return view_of(*job.model, state);
}

OwnState own_state(const Job& job) {
  OwnState own = job.strategy->own_state();
  if (job.peers && job.peers->rank() != 0) own.part.reset();
  return own;
}

checkpoint::State state_to_save(const Job& job) {
  const OwnState own = own_state(job);
  if (!own.part) return {};
  const JobView view = view_of(job);
  Pieces pieces = pieces_of(view, job.strategy->state().layout, {own.moments, own.moments});
  if (*own.part == 0) add_rest(view, pieces);
  return {parts_of(pieces.model), parts_of(pieces.optimizer)};
}

int64_t state_bytes(const Job& job) {
  const JobView view = view_of(job);
  int64_t bytes = 0;
  for (const auto* entries : {&view.parameters, &view.buffers, &view.optimizer}) {
    for (const TensorEntry& entry : *entries) bytes += static_cast<int64_t>(entry.tensor.nbytes());
  }
  return bytes;
}

checkpoint::StateHashes hashes_of(const Job& job) {
  const JobView view = view_of(job);
  checkpoint::StateHash hash;
  add_group(hash, model_of(view));
  checkpoint::StateHash of_model = hash;
  add_group(of_model, {});
  add_group(hash, view.optimizer);
  return {of_model.hex(), hash.hex()};
}

Result<int64_t> restore(Job& job, const std::filesystem::path& checkpoint) {
  HANJI_ASSIGN_OR_RETURN(const auto saved,
                         checkpoint::open_checkpoint(checkpoint, checkpoint::Check::kForm));
  const JobView view = view_of(job);
  HANJI_RETURN_IF_ERROR(check_forms(saved.model, model_of(view)).at(checkpoint.native()));
  HANJI_RETURN_IF_ERROR(check_forms(saved.optimizer, view.optimizer).at(checkpoint.native()));
  const OwnState own = own_state(job);
  Pieces pieces = pieces_of(view, job.strategy->state().layout, {own.parameters, own.moments});
  add_rest(view, pieces);
  fill(pieces.model, saved.model);
  fill(pieces.optimizer, saved.optimizer);
  job.strategy->set_num_updates(view.optimizer.front().tensor.item<int64_t>());
  return saved.manifest.step;
}

checkpoint::Manifest describe_state(const plan::Plan& plan, const Dataset& dataset,
                                    int64_t steps_done) {
  base::Json job;
  job["hash"] = plan.job_hash;
  job["seed"] = plan.config.train.seed;
  job["grain"] = plan.config.train.grain;
  job["text_checksum"] = dataset.samples->checksum();
  job["vocabulary"] = dataset.vocabulary
                          ? base::parse_json(dataset.vocabulary->to_json()).or_throw()
                          : base::Json();
  return {.step = steps_done,
          .num_samples = steps_done * plan.config.train.global_batch,
          .job = job.dump(),
          .plan = plan::to_json(plan),
          .writer = std::string(base::version())};
}

Result<std::optional<data::Vocabulary>> vocabulary_of(const checkpoint::Manifest& manifest) {
  HANJI_ASSIGN_OR_RETURN(const base::Json job, base::parse_json(manifest.job));
  const auto found = job.find("vocabulary");
  if (found == job.end()) return base::corrupt("the manifest's job names no vocabulary");
  if (found->is_null()) return std::optional<data::Vocabulary>();
  HANJI_ASSIGN_OR_RETURN(auto vocabulary, data::Vocabulary::from_json(found->dump()));
  return std::optional<data::Vocabulary>(std::move(vocabulary));
}

}  // namespace hanji::train
