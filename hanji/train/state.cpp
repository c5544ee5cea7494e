#include "hanji/train/state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <span>
#include <string_view>

#include "hanji/base/json.h"
#include "hanji/base/version.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/broadcast.h"
#include "hanji/data/samples.h"
#include "hanji/layers/model.h"
#include "hanji/layout/part.h"

namespace hanji::train {
namespace {

/// The memory of a dense tensor, wherever it lies.
at::Tensor memory_of(const at::Tensor& tensor) {
  return tensor.detach().view({-1}).view(at::kByte);
}

/// The bytes of runs of elements of a dense tensor: one run a row.
at::Tensor rows_of(const at::Tensor& tensor, const layout::StridedRange& runs) {
  const at::Tensor bytes = memory_of(tensor);
  const auto width = static_cast<int64_t>(tensor.element_size());
  return bytes.as_strided({runs.count, runs.size * width},
                          {std::max(runs.stride, runs.size) * width, 1},
                          bytes.storage_offset() + runs.begin * width);
}

/// The same of what this rank holds, in which the runs lie.
at::Tensor rows_of(const StateTensor& of, layout::StridedRange runs) {
  if (!of.held) return rows_of(of.tensor, runs);
  runs.begin -= of.held->range.begin;
  return rows_of(of.held->values, runs);
}

/// Copies what follows byte `first` of the rows.
void read_rows(const at::Tensor& rows, int64_t first, std::span<std::byte> to) {
  const int64_t width = rows.size(1);
  if (!rows.is_cpu()) {
    const int64_t bytes = std::ssize(to);
    const int64_t row = first / width;
    const at::Tensor touched = rows.narrow(0, row, (first + bytes - 1) / width + 1 - row);
    at::from_blob(to.data(), bytes, at::kByte)
        .copy_(touched.reshape({-1}).narrow(0, first - row * width, bytes));
    return;
  }
  // Without libtorch's threads, which belong to the training.
  const auto* from = rows.const_data_ptr<uint8_t>();
  while (!to.empty()) {
    const int64_t in_row = first % width;
    const auto bytes = static_cast<size_t>(std::min(width - in_row, std::ssize(to)));
    std::memcpy(to.data(), from + first / width * rows.stride(0) + in_row, bytes);
    to = to.subspan(bytes);
    first += static_cast<int64_t>(bytes);
  }
}

/// How the part of a tensor that one rank of an axis has lies in the whole.
layout::PartLayout part_of(const StateTensor& one, int index, int degree) {
  return layout::PartLayout::create(one.placement, one.whole_shape(), index, degree).or_throw();
}

/// The same for this rank.
layout::PartLayout own_part(const StateTensor& one, const layout::Cut& cut) {
  auto part = part_of(one, cut.index, cut.degree);
  if (at::IntArrayRef(part.shape()) == one.tensor.sizes()) return part;
  throw Error(base::mismatch(fmt::format(
      "{} has shape [{}] on rank {} of {} that cut it, where its placement gives it [{}]", one.name,
      fmt::join(one.tensor.sizes(), ", "), cut.index, cut.degree, fmt::join(part.shape(), ", "))));
}

/// A tensor of a job's state, and those of its elements that are meant.
struct Piece {
  StateTensor of;
  layout::PlacedRuns elements;
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
Pieces pieces_of(const Job& job, const JobView& view, const FlatRanges& ranges) {
  const layout::Cut cut = job.model->cut();
  const FlatState state = job.strategy->state();
  const size_t num_parameters = view.parameters.size();
  const size_t num_moments = (view.optimizer.size() - 1) / num_parameters;
  Pieces pieces;
  for (size_t i = 0; i < num_parameters; ++i) {
    const layout::PartLayout part = own_part(view.parameters[i], cut);
    const auto pieces_in = [&](const std::vector<layout::Range>& all, const auto& add) {
      for (const layout::Range range :
           within(all, state.layout.offsets[i], state.layout.sizes[i])) {
        for (const layout::PlacedRuns& runs : part.runs(range)) add(runs);
      }
    };
    pieces_in(ranges.parameters, [&](const layout::PlacedRuns& runs) {
      pieces.model.push_back({view.parameters[i], runs});
    });
    pieces_in(ranges.moments, [&](const layout::PlacedRuns& runs) {
      for (size_t k = 0; k < num_moments; ++k) {
        pieces.optimizer.push_back({view.optimizer[1 + i * num_moments + k], runs});
      }
    });
  }
  return pieces;
}

/// What every rank has for itself.
void add_rest(const JobView& view, Pieces& pieces) {
  const auto whole = [](const StateTensor& one) {
    const layout::StridedRange all{.size = one.tensor.numel()};
    return Piece{one, {all, all}};
  };
  for (const StateTensor& one : view.buffers) pieces.model.push_back(whole(one));
  pieces.optimizer.push_back(whole(view.optimizer.front()));
}

/// Of the tensors that no axis cuts the first rank of the axis saves all.
void leave_whole_tensors(Pieces& pieces) {
  for (auto* all : {&pieces.model, &pieces.optimizer}) {
    std::erase_if(*all, [](const Piece& piece) { return !piece.of.placement.is_cut(); });
  }
}

/// "exp_avg.layers.0.weight" is a moment of "layers.0.weight".
std::string_view parameter_of(std::string_view moment) {
  return moment.substr(moment.find('.') + 1);
}

/// Of weights that several stages read the rank of the first one saves all.
void leave_later_copies(const Job& job, Pieces& pieces) {
  std::set<std::string_view> later;
  for (const auto& [name, tensor] : job.strategy->parameters()) {
    if (!job.tied.is_first(tensor)) later.insert(name);
  }
  std::erase_if(pieces.model, [&](const Piece& one) { return later.contains(one.of.name); });
  std::erase_if(pieces.optimizer,
                [&](const Piece& one) { return later.contains(parameter_of(one.of.name)); });
}

std::vector<checkpoint::StatePart> parts_of(const std::vector<Piece>& pieces) {
  std::vector<checkpoint::StatePart> parts;
  for (const auto& [of, elements] : pieces) {
    parts.push_back({of.name, checkpoint::dtype_of(of.tensor), of.whole_shape(), elements.whole,
                     [rows = rows_of(of, elements.part)](int64_t first, std::span<std::byte> to) {
                       read_rows(rows, first, to);
                     }});
  }
  return parts;
}

Status check_forms(const std::vector<checkpoint::SavedTensor>& saved,
                   const std::vector<StateTensor>& tensors) {
  std::vector<checkpoint::TensorForm> forms;
  for (const StateTensor& one : tensors) {
    forms.push_back({one.name, checkpoint::dtype_of(one.tensor), one.whole_shape()});
  }
  return checkpoint::check_forms(saved, forms);
}

void fill(const std::vector<Piece>& pieces, const std::vector<checkpoint::SavedTensor>& saved) {
  for (const auto& [of, elements] : pieces) {
    const auto width = static_cast<int64_t>(of.tensor.element_size());
    const auto from = std::ranges::find(saved, of.name, &checkpoint::SavedTensor::name);
    const at::Tensor rows = rows_of(of, elements.part);
    const at::Tensor here = rows.is_cpu() ? rows : at::empty(rows.sizes(), at::kByte);
    for (int64_t i = 0; i < elements.whole.count; ++i) {
      auto* to = here.mutable_data_ptr<uint8_t>() + i * here.stride(0);
      checkpoint::for_each_run(*from, elements.whole.run(i), [&](int64_t first, auto run) {
        std::memcpy(to + first * width, run.data(), run.size());
      });
    }
    if (!rows.is_cpu()) rows.copy_(here);
  }
}

/// From the ranks that hold it, whose shards follow each other.
at::Tensor gathered(const StateTensor& one, const comm::Group& sharers) {
  const at::Tensor mine = at::full({1}, one.held->range.size(), at::kLong);
  at::Tensor counts = at::empty({sharers.size()}, at::kLong);
  comm::all_gather(counts, mine, sharers, {.label = one.name}).wait();
  const auto* first = counts.const_data_ptr<int64_t>();
  at::Tensor all = at::empty({one.tensor.numel()}, one.tensor.options());
  comm::all_gather(all, one.held->values, {first, first + counts.numel()}, sharers,
                   {.label = one.name})
      .wait();
  return all.view(one.tensor.sizes());
}

/// A rank's view, and what the stages of other ranks have.
JobView of_all_stages(const Job& job, JobView own) {
  if (!job.stages) return own;
  const size_t num_moments =
      own.parameters.empty() ? 0 : (own.optimizer.size() - 1) / own.parameters.size();
  const layout::Cut cut = job.model->cut();
  JobView all{.buffers = own.buffers, .gradients = {}, .parameters = {}, .optimizer = {}};
  all.optimizer.push_back(own.optimizer.front());
  for (const auto& [name, tensor] : parallel::distinct_parameters(*job.model)) {
    const int rank = job.pipeline.stages().first_rank_of(tensor, *job.model);
    const auto found = std::ranges::find(own.parameters, name, &StateTensor::name);
    const bool here = found != own.parameters.end();
    const size_t place = found - own.parameters.begin();
    layout::Placement placement;
    if (cut.degree > 1) placement = layout::placement_of(cut.placements, name).or_throw();
    const auto add = [&](std::vector<StateTensor>& to, const StateTensor& mine,
                         const std::string& as) {
      to.push_back({as, here ? mine.tensor : tensor.detach(), placement, rank});
    };
    add(all.parameters, own.parameters[here ? place : 0], name);
    if (!own.gradients.empty()) add(all.gradients, own.gradients[here ? place : 0], name);
    for (size_t i = 0; i < num_moments; ++i) {
      const StateTensor& like = own.optimizer[1 + (here ? place * num_moments : 0) + i];
      add(all.optimizer, like, like.name.substr(0, like.name.find('.') + 1) + name);
    }
  }
  return all;
}

}  // namespace

JobView view_of(const Job& job) { return view_of(*job.model, job.strategy->state()); }

JobView view_with_gradients(const Job& job) {
  FlatState state = job.strategy->state();
  state.gradients = job.strategy->gradients();
  return of_all_stages(job, view_of(*job.model, state));
}

JobView view_of_stages(const Job& job) { return of_all_stages(job, view_of(job)); }

at::Tensor whole_of(const StateTensor& one, const Job& job) {
  if (one.stage_rank >= 0) {
    const bool has_it = one.stage_rank == job.stages->rank();
    at::Tensor here = has_it ? one.tensor.detach().contiguous()
                             : at::empty(one.tensor.sizes(), one.tensor.options());
    comm::broadcast(here, one.stage_rank, *job.stages, {.label = one.name}).wait();
    return whole_of({one.name, here, one.placement}, job);
  }
  if (one.held) {
    return whole_of({one.name, gathered(one, *job.strategy->sharers()), one.placement}, job);
  }
  if (!one.placement.is_cut()) return one.tensor.detach();
  own_part(one, job.model->cut());
  std::vector<layout::PartLayout> parts;
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < job.cut->size(); ++rank) {
    parts.push_back(part_of(one, rank, job.cut->size()));
    bytes.push_back(parts.back().num_elements() * static_cast<int64_t>(one.tensor.element_size()));
  }
  const at::Tensor mine = memory_of(one.tensor);
  at::Tensor all = at::empty({std::reduce(bytes.begin(), bytes.end())}, mine.options());
  comm::all_gather(all, mine, bytes, *job.cut, {.label = one.name}).wait();
  const at::Tensor whole = at::empty(one.whole_shape(), one.tensor.options());
  int64_t begin = 0;
  for (int rank = 0; rank < job.cut->size(); ++rank) {
    const at::Tensor part = all.narrow(0, begin, bytes[rank]).view(one.tensor.scalar_type());
    for (const layout::PlacedRuns& runs : parts[rank].runs({0, parts[rank].num_elements()})) {
      rows_of(whole, runs.whole).copy_(rows_of(part, runs.part));
    }
    begin += bytes[rank];
  }
  return whole;
}

OwnState own_state(const Job& job) {
  OwnState own = job.strategy->own_state();
  const layout::Cut cut = job.model->cut();
  const int degree = cut.degree * (job.stages ? job.stages->size() : 1);
  const int index = cut.index + cut.degree * (job.stages ? job.stages->rank() : 0);
  const auto& copies = job.is_axial ? job.peers : job.context;
  const bool repeats = copies && !adds_terms_of_peers(job);
  if (repeats && copies->rank() > 0) own.part.reset();
  if (own.part) own.part = *own.part * degree + index;
  own.num_parts *= degree;
  return own;
}

checkpoint::State state_to_save(const Job& job) {
  const OwnState own = own_state(job);
  if (!own.part) return {};
  const JobView view = view_of(job);
  Pieces pieces = pieces_of(job, view, {own.moments, own.moments});
  if (job.model->cut().index > 0) leave_whole_tensors(pieces);
  if (job.stages) leave_later_copies(job, pieces);
  if (*own.part == 0) add_rest(view, pieces);
  return {parts_of(pieces.model), parts_of(pieces.optimizer)};
}

checkpoint::SaveSize size_of_state(const Job& job) {
  const JobView view = view_of_stages(job);
  checkpoint::SaveSize size;
  for (const auto* tensors : {&view.parameters, &view.buffers, &view.optimizer}) {
    size.num_tensors += std::ssize(*tensors);
    for (const StateTensor& one : *tensors) {
      size.bytes += *checkpoint::dense_bytes(checkpoint::dtype_of(one.tensor), one.whole_shape());
    }
  }
  return size;
}

checkpoint::StateHashes hashes_of(const Job& job) {
  const JobView view = view_of_stages(job);
  return hashes_of(model_of(view), view.optimizer,
                   [&](const StateTensor& one) { return whole_of(one, job); });
}

Result<int64_t> restore(Job& job, const std::filesystem::path& checkpoint) {
  HANJI_ASSIGN_OR_RETURN(const auto saved,
                         checkpoint::open_checkpoint(checkpoint, checkpoint::Check::kForm));
  const JobView all = view_of_stages(job);
  HANJI_RETURN_IF_ERROR(check_forms(saved.model, model_of(all)).at(checkpoint.native()));
  HANJI_RETURN_IF_ERROR(check_forms(saved.optimizer, all.optimizer).at(checkpoint.native()));
  const JobView view = view_of(job);
  const OwnState own = own_state(job);
  Pieces pieces = pieces_of(job, view, {own.parameters, own.moments});
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
  if (dataset.tokens) job["num_tokens"] = dataset.tokens->tokens().num_tokens();
  job["vocabulary"] = dataset.vocabulary
                          ? base::parse_json(dataset.vocabulary->to_json()).or_throw()
                          : base::Json();
  return {.step = steps_done,
          .num_samples = steps_done * plan.config.train.global_batch,
          .job = base::dump(job),
          .plan = plan::to_json(plan),
          .writer = std::string(base::version())};
}

Result<std::optional<data::Vocabulary>> vocabulary_of(const checkpoint::Manifest& manifest) {
  HANJI_ASSIGN_OR_RETURN(const base::Json job, base::parse_json(manifest.job));
  const auto found = job.find("vocabulary");
  if (found == job.end()) return base::corrupt("the manifest's job names no vocabulary");
  if (found->is_null()) return std::optional<data::Vocabulary>();
  HANJI_ASSIGN_OR_RETURN(auto vocabulary, data::Vocabulary::from_json(base::dump(*found)));
  return std::optional<data::Vocabulary>(std::move(vocabulary));
}

}  // namespace hanji::train
