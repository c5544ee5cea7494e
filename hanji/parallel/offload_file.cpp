#include "hanji/parallel/offload_file.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

namespace hanji::parallel {

Result<std::shared_ptr<OffloadFile>> OffloadFile::create(std::string owner,
                                                         const std::filesystem::path& folder,
                                                         int64_t bytes,
                                                         const base::ScratchOptions& options) {
  auto file = base::ScratchFile::create(folder, bytes, options);
  if (!file.ok()) return file.status().at(owner);
  return std::shared_ptr<OffloadFile>(new OffloadFile(std::move(owner), *std::move(file)));
}

OffloadFile::Ticket OffloadFile::start(bool writes, int64_t at, const Memory& memory,
                                       int64_t bytes) {
  check_usable();
  const std::vector<Transfer> before = open_;
  for (const Transfer& other : before) {
    const bool meets = other.begin < at + bytes && at < other.end;
    if (meets && (writes || other.writes)) wait(other.ticket);
  }
  auto ticket = writes ? file_.write(at, memory, bytes) : file_.read(at, memory, bytes);
  if (!ticket.ok()) fail(ticket.status());
  check_usable();
  open_.push_back({*ticket, writes, at, at + bytes});
  return *ticket;
}

void OffloadFile::wait(Ticket ticket) {
  check_usable();
  const auto found = std::ranges::find(open_, ticket, &Transfer::ticket);
  if (found == open_.end()) return;
  open_.erase(found);
  fail(file_.wait(ticket));
  check_usable();
}

void OffloadFile::flush() {
  check_usable();
  while (!open_.empty()) wait(open_.front().ticket);
}

at::Tensor OffloadFile::map(int64_t at, int64_t count, at::ScalarType dtype) {
  flush();
  const int64_t bytes = count * static_cast<int64_t>(c10::elementSize(dtype));
  auto memory = file_.map(at, bytes);
  if (!memory.ok()) fail(memory.status());
  check_usable();
  void* data = memory->get();
  return at::from_blob(
      data, {count}, [memory = *memory](void*) {}, at::TensorOptions(dtype));
}

void OffloadFile::fail(const Status& status) {
  if (!status.ok() && failure_.ok()) failure_ = status.at(owner_);
}

void OffloadFile::check_updates_allowed() const {
  check_usable();
  if (!why_refused_.empty()) throw Error(base::invalid_argument(why_refused_));
}

}  // namespace hanji::parallel
