// A checkpoint that several ranks write, each the runs that it holds.
#include <gmock/gmock.h>

#include <fmt/format.h>
#include <unistd.h>

#include <thread>
#include <tuple>

#include "hanji/checkpoint/diff.h"
#include "hanji/checkpoint/export.h"
#include "hanji/checkpoint/folder.h"
#include "hanji/checkpoint/hash.h"
#include "hanji/checkpoint/internal/kill_at_call.h"
#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/checkpoint/tensors.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

namespace fs = std::filesystem;
using internal::read_bytes;
using internal::TestState;
using internal::write_bytes;
using testing::HasSubstr;

/// Of each tensor, the elements of one part of several.
std::vector<StatePart> cut(std::vector<StatePart> parts, int part, int num_parts) {
  std::vector<StatePart> own;
  for (StatePart& whole : parts) {
    const int64_t count = whole.elements.num_elements();
    const layout::Range run{count * part / num_parts, count * (part + 1) / num_parts};
    if (run.empty() && (count > 0 || part > 0)) continue;
    const int64_t skipped = run.begin * static_cast<int64_t>(base::size_of(whole.dtype));
    own.push_back({whole.name,
                   whole.dtype,
                   whole.shape,
                   {run.begin, run.size()},
                   [read = whole.read, skipped](int64_t first, std::span<std::byte> to) {
                     read(skipped + first, to);
                   }});
  }
  return own;
}

State cut(const State& state, int part, int num_parts) {
  return {cut(state.model, part, num_parts), cut(state.optimizer, part, num_parts)};
}

/// The elements of a whole tensor that runs of one rank's part are.
StatePart placed(const StatePart& whole, const layout::StridedRange& runs) {
  const auto width = static_cast<int64_t>(base::size_of(whole.dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(runs.num_elements() * width));
  for (int64_t i = 0; i < runs.count; ++i) {
    whole.read(runs.run(i).begin * width,
               std::span(bytes).subspan(static_cast<size_t>(i * runs.size * width),
                                        static_cast<size_t>(runs.size * width)));
  }
  return {whole.name, whole.dtype, whole.shape, runs,
          [bytes](int64_t first, std::span<std::byte> to) {
            std::memcpy(to.data(), bytes.data() + first, to.size());
          }};
}

/// One of `degree` * `num_shards` writers: the axis cuts matrices along `dim`, in two segments, and
/// shards cut what a rank has.
std::vector<StatePart> cut_by_axis(const std::vector<StatePart>& parts, int64_t dim, int degree,
                                   int num_shards, int writer) {
  const int index = writer % degree;
  const int shard = writer / degree;
  std::vector<StatePart> own;
  for (const StatePart& whole : parts) {
    layout::Placement placement;
    if (whole.shape.size() == 2 && whole.shape[0] > 0) {
      const int64_t size = whole.shape[static_cast<size_t>(dim)];
      placement = {dim, {size / 2, size - size / 2}};
    } else if (index > 0) {
      continue;
    }
    const auto part = layout::PartLayout::create(placement, whole.shape, index, degree).or_throw();
    const int64_t count = part.num_elements();
    if (count == 0 && shard == 0) own.push_back(whole);
    for (const auto& runs :
         part.runs({count * shard / num_shards, count * (shard + 1) / num_shards})) {
      own.push_back(placed(whole, runs.whole));
    }
  }
  return own;
}

SaveOptions options_of(const fs::path& folder, int part, int num_parts) {
  return {.folder = folder,
          .writer = {part, num_parts, {part, {{"fsdp", part}}}},
          .copy_bytes = 100,
          .timeout = std::chrono::seconds(20)};
}

/// All parts, one after the other, part 0 last.
Status save_in_parts(const fs::path& folder, const TestState& state, int64_t step, int num_parts) {
  const State all = state.state();
  HANJI_RETURN_IF_ERROR(
      begin_checkpoint(options_of(folder, 0, num_parts), step, {all.num_bytes()}));
  for (int part = num_parts - 1; part >= 0; --part) {
    HANJI_RETURN_IF_ERROR(save_checkpoint(options_of(folder, part, num_parts),
                                          cut(all, part, num_parts), {.step = step}));
  }
  return {};
}

TEST(SavedParts, AreTheCheckpointOfOneWriter) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  ASSERT_TRUE(save_checkpoint({.folder = temporary.path() / "one"}, state.state(), {}).ok());
  const auto one = load_checkpoint(temporary.path() / "one").or_throw();
  for (const int num_parts : {2, 3, 7}) {
    const fs::path folder = temporary.path() / std::to_string(num_parts);
    const Status status = save_in_parts(folder, state, 4, num_parts);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto parts = load_checkpoint(folder).or_throw();
    EXPECT_TRUE(holds(parts, state));
    EXPECT_EQ(state_hash(parts.model, parts.optimizer), state_hash(one.model, one.optimizer));
    EXPECT_TRUE(diff(parts.model, one.model).empty());
    EXPECT_EQ(parts.manifest.files.size(), 2U * static_cast<size_t>(num_parts));
    EXPECT_EQ(parts.manifest.files.back().writer,
              (WriterRecord{num_parts - 1, {{"fsdp", num_parts - 1}}}));
    ASSERT_TRUE(export_tensors(parts, {}, folder / "out").ok());
    const auto exported = SafetensorsFile::open(folder / "out").or_throw();
    EXPECT_TRUE(internal::holds(in_one_run(exported.tensors()), state.model()));
    for (const auto& entry : fs::directory_iterator(parts.path)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("part_")) << entry.path();
    }
  }
}

TEST(SavedParts, OfAModelCutByAnAxisAreTheCheckpointOfOneWriter) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(3);
  const State all = state.state();
  ASSERT_TRUE(save_checkpoint({.folder = temporary.path() / "one"}, all, {}).ok());
  const auto one = load_checkpoint(temporary.path() / "one").or_throw();
  for (const auto& [dim, degree, num_shards] :
       {std::tuple(0, 2, 1), std::tuple(1, 2, 1), std::tuple(1, 3, 2), std::tuple(1, 4, 5)}) {
    const fs::path folder = temporary.path() / fmt::format("{}{}{}", dim, degree, num_shards);
    const int writers = degree * num_shards;
    ASSERT_TRUE(begin_checkpoint(options_of(folder, 0, writers), 1, {}).ok());
    for (int writer = writers - 1; writer >= 0; --writer) {
      const State own = {cut_by_axis(all.model, dim, degree, num_shards, writer),
                         cut_by_axis(all.optimizer, dim, degree, num_shards, writer)};
      const Status status = save_checkpoint(options_of(folder, writer, writers), own, {.step = 1});
      ASSERT_TRUE(status.ok()) << status.message();
    }
    const auto parts = load_checkpoint(folder).or_throw();
    EXPECT_TRUE(holds(parts, state));
    EXPECT_EQ(state_hash(parts.model, parts.optimizer), state_hash(one.model, one.optimizer));
    EXPECT_TRUE(diff(parts.model, one.model).empty());
    EXPECT_TRUE(diff(one.optimizer, parts.optimizer).empty());
    ASSERT_TRUE(export_tensors(parts, {}, folder / "out").ok());
    const auto exported = SafetensorsFile::open(folder / "out").or_throw();
    EXPECT_TRUE(internal::holds(in_one_run(exported.tensors()), state.model()));
  }
}

SavedTensor matrix_of(const std::vector<std::byte>& bytes,
                      const std::vector<layout::StridedRange>& runs) {
  SavedTensor tensor{"w", DType::kUInt8, {4, 6}};
  for (const layout::StridedRange& one : runs) {
    tensor.runs.push_back({one, std::span(bytes).first(static_cast<size_t>(one.num_elements()))});
  }
  return tensor;
}

TEST(SavedParts, RunsAreVisitedInOrderFromAnyElement) {
  std::vector<std::byte> bytes(24);
  const SavedTensor tensor = matrix_of(bytes, {{3, 3, 6, 4}, {0, 3, 6, 2}, {12, 3, 6, 2}});
  for (int64_t begin = 0; begin < 24; ++begin) {
    for (int64_t end = begin; end <= 24; ++end) {
      int64_t next = 0;
      for_each_run(tensor, {begin, end}, [&](int64_t first, std::span<const std::byte> run) {
        EXPECT_EQ(first, next);
        next += std::ssize(run);
      });
      EXPECT_EQ(next, end - begin);
    }
  }
}

TEST(SavedParts, WithAnElementInNoneOrTwoOfThemAreRefused) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const std::vector<std::byte> bytes(24);
  const auto opened = [&](const std::vector<layout::StridedRange>& runs) {
    State state;
    for (const layout::StridedRange& one : runs) {
      state.model.push_back(
          {"w", DType::kUInt8, {4, 6}, one, [](int64_t, std::span<std::byte>) {}});
    }
    const Status saved = save_checkpoint({.folder = temporary.path()}, state, {.step = 1});
    EXPECT_TRUE(saved.ok()) << saved.message();
    return open_checkpoint(temporary.path() / folder_name(1)).status();
  };
  EXPECT_TRUE(opened({{0, 2, 6, 4}, {2, 4, 6, 4}}).ok());
  EXPECT_THAT(opened({{0, 2, 6, 4}, {3, 3, 6, 4}}).message(),
              HasSubstr("elements 2 to 3 of tensor 'w' uint8 [4, 6] are in none of its files"));
  EXPECT_THAT(opened({{0, 3, 6, 4}, {2, 4, 6, 4}}).message(),
              HasSubstr("elements 2 to 3 of tensor 'w' uint8 [4, 6] are in more than one"));
  EXPECT_THAT(opened({{0, 2, 6, 4}, {2, 4, 6, 3}}).message(), HasSubstr("elements 20 to 24"));
  EXPECT_THAT(opened({{0, 24}, {6, 3}}).message(), HasSubstr("more than one"));
}

TEST(SavedParts, OfWhichOneDiffersDifferThere) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  TestState state(1);
  ASSERT_TRUE(save_in_parts(temporary.path() / "2", state, 1, 2).ok());
  state.first_bytes()[400] ^= std::byte{1};
  state.first_bytes()[2040] ^= std::byte{1};
  ASSERT_TRUE(save_in_parts(temporary.path() / "3", state, 1, 3).ok());
  const auto a = load_checkpoint(temporary.path() / "2").or_throw();
  const auto b = load_checkpoint(temporary.path() / "3").or_throw();
  const auto found = diff(a.model, b.model);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, "head.weight");
  EXPECT_EQ(found[0].num_elements, 2);
  EXPECT_EQ(found[0].first_element, 100);
}

TEST(SavedParts, AreReadByRanges) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  ASSERT_TRUE(save_in_parts(temporary.path(), state, 1, 3).ok());
  const auto saved = load_checkpoint(temporary.path()).or_throw();
  const SavedTensor& tensor = *std::ranges::find(saved.model, "head.weight", &SavedTensor::name);
  std::vector<std::byte> bytes(300 * 4);
  for_each_run(tensor, {100, 400}, [&](int64_t first, auto run) {
    std::memcpy(bytes.data() + first * 4, run.data(), run.size());
  });
  EXPECT_TRUE(std::ranges::equal(bytes, state.model()[0].bytes.subspan(400, 1200)));
}

TEST(SavedParts, ADamagedOneIsNamed) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  ASSERT_TRUE(save_in_parts(temporary.path(), TestState(1), 1, 2).ok());
  const fs::path folder = temporary.path() / "step_00000001";
  const std::string good = read_bytes(folder / "model.part_1.safetensors");
  std::string bad = good;
  bad[bad.size() - 60] ^= 1;
  write_bytes(folder / "model.part_1.safetensors", bad);
  EXPECT_THAT(open_checkpoint(folder).status().message(),
              testing::AllOf(HasSubstr("model.part_1.safetensors"), HasSubstr("bytes changed")));
  EXPECT_TRUE(open_checkpoint(folder, Check::kForm).ok()) << "only its headers are read";
  write_bytes(folder / "model.part_1.safetensors", good);
  fs::remove(folder / "optimizer.part_0.safetensors");
  EXPECT_THAT(open_checkpoint(folder).status().message(),
              HasSubstr("optimizer.part_0.safetensors is missing"));
}

TEST(SavedParts, AMissingRunIsNamed) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  ASSERT_TRUE(begin_checkpoint(options_of(temporary.path(), 0, 2), 1, {}).ok());
  State second = cut(state.state(), 1, 2);
  second.model.erase(second.model.begin());
  ASSERT_TRUE(save_checkpoint(options_of(temporary.path(), 1, 2), second, {.step = 1}).ok());
  ASSERT_TRUE(
      save_checkpoint(options_of(temporary.path(), 0, 2), cut(state.state(), 0, 2), {.step = 1})
          .ok());
  EXPECT_THAT(load_checkpoint(temporary.path()).status().message(),
              HasSubstr("elements 256 to 512 of tensor 'head.weight' float32 [4, 128]"));
}

TEST(SavedParts, OfThreadsComeTogetherInAnyOrder) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  constexpr int kParts = 4;
  const TestState state(5);
  const State all = state.state();
  for (int64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(begin_checkpoint(options_of(temporary.path(), 0, kParts), step, {}).ok());
    std::vector<std::jthread> writers;
    for (int part = 0; part < kParts; ++part) {
      writers.emplace_back([&, part] {
        EXPECT_TRUE(save_checkpoint(options_of(temporary.path(), part, kParts),
                                    cut(all, part, kParts), {.step = step})
                        .ok());
      });
    }
    writers.clear();
    EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), state));
  }
  EXPECT_EQ(list_checkpoints(temporary.path())->size(), 3U);
}

TEST(SavedParts, TheFailureOfOneIsToldByPart0AndTheOldCheckpointStays) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  ASSERT_TRUE(save_in_parts(temporary.path(), state, 1, 2).ok());
  const TestState next(2);
  ASSERT_TRUE(begin_checkpoint(options_of(temporary.path(), 0, 2), 2, {}).ok());
  write_bytes(unfinished_path(temporary.path(), 2) / "model.part_1.safetensors", "in the way");
  const Status failed =
      save_checkpoint(options_of(temporary.path(), 1, 2), cut(next.state(), 1, 2), {.step = 2});
  EXPECT_FALSE(failed.ok());
  const Status status =
      save_checkpoint(options_of(temporary.path(), 0, 2), cut(next.state(), 0, 2), {.step = 2});
  EXPECT_THAT(status.message(), HasSubstr("part 1 of the checkpoint failed: "));
  EXPECT_EQ(status.code(), failed.code());
  EXPECT_TRUE(holds(*load_checkpoint(temporary.path()), state));
  EXPECT_FALSE(fs::exists(unfinished_path(temporary.path(), 2)));
}

TEST(SavedParts, OneThatDoesNotComeIsNamed) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const TestState state(1);
  SaveOptions options = options_of(temporary.path(), 0, 2);
  options.timeout = std::chrono::milliseconds(20);
  ASSERT_TRUE(begin_checkpoint(options, 1, {}).ok());
  const Status status = save_checkpoint(options, cut(state.state(), 0, 2), {.step = 1});
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("part 1 of the checkpoint"));
}

TEST(SavedParts, KilledAtAnyCallLeaveTheOldOrTheNewState) {
  const test::TemporaryFolder temporary(internal::folder_in_memory());
  const fs::path folder = temporary.path() / "checkpoints";
  const fs::path start = temporary.path() / "start";
  const TestState old_state(1), new_state(2), next_state(3);
  ASSERT_TRUE(save_in_parts(start, old_state, 1, 2).ok());
  for (int call = 1;; ++call) {
    SCOPED_TRACE(testing::Message() << "killed at call " << call);
    fs::remove_all(folder);
    fs::copy(start, folder, fs::copy_options::recursive);
    const auto ending = internal::kill_at_call(call, [&] {
      if (!save_in_parts(folder, new_state, 2, 2).ok()) ::_exit(1);
    });
    const auto loaded = load_checkpoint(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_TRUE(holds(*loaded, old_state) || holds(*loaded, new_state));
    EXPECT_TRUE(loaded->refused.empty());
    ASSERT_TRUE(save_in_parts(folder, next_state, 3, 2).ok());
    EXPECT_TRUE(holds(*load_checkpoint(folder), next_state));
    if (!ending.killed) {
      EXPECT_GT(ending.num_calls, 25);
      break;
    }
    ASSERT_LT(call, 500);
  }
}

}  // namespace
}  // namespace hanji::checkpoint
