#include "hanji/cli/exercises/judges.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "hanji/base/text.h"
#include "hanji/cli/exercises/link_facts.h"

namespace hanji::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// What a judgement finds missing; empty if it passed.
std::string missing(const Judgement& judgement) {
  std::string text;
  for (const Point& point : judgement) {
    if (!point.good) text += point.text + " (" + point.hint + ")\n";
  }
  return text;
}

size_t count_missing(const Judgement& judgement) {
  return static_cast<size_t>(std::ranges::count(judgement, false, &Point::good));
}

const Exercise& exercise(int number) {
  static const auto all = read_exercises();
  return all[static_cast<size_t>(number - 1)];
}

TEST(Exercises, AreSixOfOneScreenEachWithATaskAndAChapter) {
  const auto all = read_exercises();
  ASSERT_THAT(all, SizeIs(6));
  for (const Exercise& one : all) {
    EXPECT_EQ(one.number, &one - all.data() + 1);
    EXPECT_FALSE(one.title.empty());
    EXPECT_THAT(std::string(one.chapter), HasSubstr("docs/learn/"));
    EXPECT_THAT(std::string(one.task), HasSubstr("____"));
    ASSERT_FALSE(one.files.empty());
    for (const ExerciseFile& file : one.files)
      EXPECT_LE(std::ranges::count(file.text, '\n'), 50) << file.path;
    for (const ExerciseFile& file : one.solution)
      EXPECT_LE(std::ranges::count(file.text, '\n'), 50) << file.path;
  }
}

TEST(Exercises, OursDiffersOnlyWhereThereAreGapsAndHasNone) {
  for (const Exercise& one : read_exercises()) {
    const auto& given = one.files.front();
    EXPECT_THAT(find_gaps(given.text), testing::Not(IsEmpty())) << given.path;
    const auto ours = std::ranges::find(one.solution, given.path, &ExerciseFile::path);
    ASSERT_NE(ours, one.solution.end());
    EXPECT_THAT(find_gaps(ours->text), IsEmpty()) << given.path;
    if (one.number == 6) continue;  // there a program is mended
    size_t at = 0;                  // every line without a gap is in ours, in the same order
    for (const std::string_view line : base::split(given.text, '\n')) {
      if (line.find(kGap) != std::string_view::npos) continue;
      at = ours->text.find(line, at);
      ASSERT_NE(at, std::string_view::npos) << given.path << ": " << line;
    }
  }
}

TEST(Exercises, AGapIsNamedWithItsLine) {
  const auto judgement = judge_gaps({"a.sh", "# fill in each `____`\nx=1\ny=____\n"});
  ASSERT_THAT(judgement, SizeIs(1));
  EXPECT_THAT(missing(judgement), HasSubstr("a.sh:3: a gap is left: y=____"));
}

TEST(Exercises, AnswersAreLinesOfNamesAndValues) {
  const Answers answers(
      "noise\nrate=1.5\n// absent_rank=1\nlike=\"PCIe 4 x16\"\nrate=2\nempty=\nA=3\n");
  EXPECT_EQ(answers.number("rate"), 2);
  EXPECT_EQ(answers.text("absent_rank"), "1");
  EXPECT_EQ(answers.text("like"), "PCIe 4 x16");
  EXPECT_EQ(answers.text("empty"), std::nullopt);
  EXPECT_EQ(answers.number("like"), std::nullopt);
}

TEST(Exercises, AMissingAnswerAndOneThatIsNoNumberAreNamed) {
  const Expected expected{"rate", 5, 0.1, "why", "hint"};
  EXPECT_THAT(judge_number(Answers(""), expected).text,
              HasSubstr("no line rate=VALUE was printed"));
  EXPECT_THAT(judge_number(Answers("rate=much"), expected).text,
              HasSubstr("rate=much is no number"));
  EXPECT_FALSE(judge_number(Answers("rate=nan"), expected).good);
  EXPECT_TRUE(judge_number(Answers("rate=5.4"), expected).good);
  EXPECT_FALSE(judge_number(Answers("rate=5.6"), expected).good);
  EXPECT_FALSE(judge_order(Answers("rate=-5"), expected).good);
}

TEST(Exercises, TheTextSaysPassedOrWhatIsMissing) {
  EXPECT_THAT(to_text(exercise(4), {{true, "seen"}}),
              HasSubstr("exercise 4: passed\n  yes  seen\n"));
  EXPECT_THAT(to_text(exercise(4), {{true, "seen"}, {false, "wrong", "do"}}),
              testing::AllOf(HasSubstr("exercise 4: not passed yet"),
                             HasSubstr("  NO   wrong\n       hint: do\n"),
                             HasSubstr("read docs/learn/6_profiling.md"),
                             HasSubstr("hanji exercise 4 --solution")));
  EXPECT_FALSE(passed({}));
}

TEST(ExerciseLinks, FactsAreThoseOfTheHost) {
  topology::Graph graph;
  const int machine = graph.add({.id = "machine"}, -1);
  const int gpu = graph.add(
      {.id = "gpu:a", .kind = topology::VertexKind::kGpu}, machine,
      {.kind = topology::LinkKind::kPcie, .label = "PCIe 5 x16", .bytes_per_second = 63e9});
  const int other = graph.add({.id = "gpu:b", .kind = topology::VertexKind::kGpu}, machine);
  graph.links.push_back({gpu, other, topology::LinkKind::kNvlink, "NVLink 4 x18", 450e9, ""});
  topology::CoreRates rates;
  rates.pairs = {{.bytes_per_second = 9e9}, {.bytes_per_second = 8e9}};
  rates.copies = {{.num_copies = 1, .bytes_per_second = 10e9},
                  {.num_copies = 2, .bytes_per_second = 12e9}};
  const LinkFacts facts =
      facts_of_host(graph, rates, topology::GpuRates{.host_bytes_per_second = 55e9});
  EXPECT_EQ(facts.memory_one, 10e9);
  EXPECT_EQ(facts.memory_all, 12e9);
  EXPECT_EQ(facts.between_cores, 8e9);
  EXPECT_EQ(facts.gpu_link, "NVLink 4 x18");
  EXPECT_EQ(facts.gpu_link_rate, 450e9);
  EXPECT_EQ(facts.pcie_rate, 63e9);
  EXPECT_EQ(facts.gpu_copy, 55e9);
  EXPECT_FALSE(facts_of_host(graph, rates, std::nullopt).has_gpu);
}

const LinkFacts kLinks{.memory_one = 10e9,
                       .memory_all = 12e9,
                       .between_cores = 8e9,
                       .loopback = 1.2e9,
                       .throttled_seconds = 0.168,
                       .throttled_by = "a network namespace"};
const std::string kLinkAnswers =
    "memory_one_gb=9\nmemory_all_gb=13\nbetween_cores_gb=7\nloopback_gb=1.1\nloopback_is_like="
    "Ethernet 10G\n"
    "predicted_ms=168\nmeasured_ms=170\ngpu_link=none\ngpu_copy_gb=none\n";

std::string links_with(const std::string& changed, LinkFacts facts = kLinks) {
  return missing(judge_links(Answers(kLinkAnswers + changed), facts));
}

TEST(ExerciseLinks, AnotherOrderOfSizeIsNamed) {
  EXPECT_EQ(links_with(""), "");
  EXPECT_THAT(links_with("memory_one_gb=90\n"),
              HasSubstr("one core copies, measured again: 10 GB/s"));
  EXPECT_THAT(links_with("loopback_gb=0.1\n"), HasSubstr("loopback_gb=0.1 is not right"));
  EXPECT_THAT(links_with("loopback_is_like=PCIe 5 x16\n"), HasSubstr("another order of size"));
  EXPECT_THAT(links_with("loopback_is_like=fast\n"), HasSubstr("\"fast\" is no link of the table"));
}

TEST(ExerciseLinks, TheLinkThatIsLikeTheSocketIsJudgedByTheRateThatWasAnswered) {
  const std::string seen =
      links_with("loopback_gb=2.9\nloopback_is_like=Ethernet 10G\n");  // measured: 1.2
  EXPECT_THAT(seen, HasSubstr("Ethernet 10G has 1.25 GB/s, loopback_gb is 2.9 GB/s: that is 0.43"));
  EXPECT_EQ(links_with("loopback_gb=2.9\nloopback_is_like=Ethernet 25G\n"), "");
  EXPECT_THAT(links_with("loopback_gb=fast\nloopback_is_like=PCIe 5 x16\n"),
              HasSubstr("the socket 1.2 GB/s"));
}

TEST(ExerciseLinks, BitsForBytesAndAnotherThrottleAreNamed) {
  EXPECT_THAT(links_with("predicted_ms=21\n"),
              testing::AllOf(HasSubstr("33.6 Mbit, which take 168 ms"),
                             HasSubstr("and times 1000 for milliseconds")));
  EXPECT_THAT(links_with("measured_ms=340\n"),
              HasSubstr("measured again in a network namespace: 168 ms"));
}

TEST(ExerciseLinks, AGpuIsComparedWithTheTableAndSkippedWhereThereIsNone) {
  EXPECT_THAT(links_with("gpu_link=PCIe 5 x16\n"),
              HasSubstr("no GPU is here that this build can measure"));
  LinkFacts gpu = kLinks;
  gpu.has_gpu = true;
  gpu.gpu_link = "NVLink 4 x18";
  gpu.gpu_link_rate = 450e9;
  gpu.pcie_rate = 63e9;
  gpu.gpu_copy = 55e9;
  EXPECT_EQ(links_with("gpu_link=NVLink 4 x18 (H100)\ngpu_copy_gb=54\n", gpu), "");
  EXPECT_THAT(links_with("gpu_link=PCIe 5 x16\ngpu_copy_gb=54\n", gpu),
              HasSubstr("another order of size"));
  EXPECT_EQ(links_with("gpu_link=NVLink 4 x18\ngpu_copy_gb=54\n", gpu), "");
  EXPECT_THAT(links_with("", gpu), HasSubstr("\"none\" is no link of the table"));
  gpu.gpu_link_rate = gpu.pcie_rate = 0;  // a virtual machine
  EXPECT_EQ(links_with("gpu_copy_gb=54\n", gpu), "");
}

TEST(ExerciseAccumulation, OursIsOneProcessAndEachMistakeIsNamed) {
  const AccumulationJob job;
  const auto with = [&](double factor, int64_t calls, double per_later = 1) {
    const auto weights = train_alone(job, {factor, per_later});
    return missing(judge_accumulation(job, {{weights, calls}, {weights, calls}}));
  };
  EXPECT_EQ(with(1, 8), "");
  EXPECT_THAT(with(1.5, 8), HasSubstr("is it divided by the number of micro-batches?"));
  EXPECT_THAT(with(2, 8), HasSubstr("the gradients of 2 ranks are summed, not averaged"));
  EXPECT_THAT(with(3, 8), HasSubstr("the losses of 3 micro-batches are summed"));
  EXPECT_THAT(with(6, 8),
              HasSubstr("are summed, not averaged, and the losses of 3 micro-batches are summed"));
  EXPECT_THAT(with(0.5, 8), HasSubstr("divided by the ranks twice"));
  EXPECT_THAT(with(0.9, 8), HasSubstr("weights differ from those of one process by"));
  EXPECT_THAT(with(2, 24, 2), HasSubstr("summed after every micro-batch, the earlier ones again"));
  EXPECT_THAT(with(1, 16), HasSubstr("averaged 2 times a step, not once"));
  EXPECT_THAT(with(1, 24), HasSubstr("averaged 3 times a step, not once"));
  EXPECT_THAT(with(1, 0), HasSubstr("nothing was averaged"));
}

TEST(ExerciseAccumulation, RanksThatDifferOrAreMissingAreNamed) {
  const AccumulationJob job;
  const auto weights = train_alone(job);
  auto other = weights;
  other[1] += 1e-3;
  EXPECT_THAT(missing(judge_accumulation(job, {{weights, 8}, {other, 8}})),
              HasSubstr("ranks 0 and 1 have other weights"));
  EXPECT_THAT(missing(judge_accumulation(job, {{weights, 8}})), HasSubstr("1 of 2 ranks printed"));
}

const HybridFacts kHybrid{.strategy = "hsdp",
                          .shares_memory = false,
                          .ranks = 4,
                          .dp = 2,
                          .fsdp = 2,
                          .parameter_bytes = 120832,
                          .optimizer_bytes = 241664,
                          .wire_bytes = 934224};

std::string hybrid_with(const std::string& changed, HybridFacts facts = kHybrid) {
  const std::string mesh = fmt::format("dp={}\nfsdp={}\n", facts.dp, facts.fsdp);
  return missing(judge_hybrid(
      Answers(mesh + "parameters=29700\noptimizer_bytes=118800\nwire_bytes=950400\n" + changed),
      facts));
}

TEST(ExerciseHybrid, AMeshThatIsTooLargeOrSendsMoreIsNamed) {
  EXPECT_EQ(hybrid_with(""), "");
  HybridFacts facts = kHybrid;
  facts.dp = 1;
  facts.fsdp = 4;
  EXPECT_THAT(hybrid_with("", facts),
              HasSubstr("but fsdp=2 fits as well and sends 8 instead of 9 times"));
  facts.dp = 4;
  facts.fsdp = 1;
  EXPECT_THAT(hybrid_with("", facts),
              HasSubstr("8 bytes of moments of a parameter on a rank, and there is room for 5"));
}

TEST(ExerciseHybrid, ARunThatWasKeptFromAnotherMeshIsNamedAlone) {
  EXPECT_EQ(hybrid_with("dp=1\nfsdp=4\nwire_bytes=1\n"),
            "run/ was trained with dp=2, fsdp=2, but hybrid.sh says dp=1, fsdp=4 (rm -r run, and "
            "run the script again)\n");
  EXPECT_THAT(hybrid_with("dp=\n"), HasSubstr("dp: no line dp=VALUE was printed"));
}

TEST(ExerciseHybrid, EachWrongPredictionIsNamed) {
  EXPECT_THAT(hybrid_with("parameters=118800\n"), HasSubstr("parameters=118800 is not right"));
  EXPECT_THAT(hybrid_with("optimizer_bytes=237600\n"), HasSubstr("in a group of 2: 120832 a rank"));
  EXPECT_THAT(hybrid_with("wire_bytes=475200\n"),
              testing::AllOf(HasSubstr("the run counted 934224 bytes a step"),
                             HasSubstr("(f-1) / f alone is 0")));
  HybridFacts other = kHybrid;
  other.strategy = "zero3";
  EXPECT_THAT(hybrid_with("", other), HasSubstr("parallel.data=zero3"));
}

const OverheadFacts kOverhead{.step_seconds = 0.012,
                              .exposed_seconds = 0.006,
                              .exposed_after = 1e-5,
                              .engine = "gloo",
                              .changed_keys = {"comm.engine"},
                              .after = {.comm = {.engine = plan::Engine::kShm}}};

std::string overhead_with(const std::string& changed, OverheadFacts facts = kOverhead) {
  return missing(judge_overhead(
      Answers("exposed_ms=6\nshare_percent=50\nspeed_up_at_most=2\nchange=comm.engine=shm\n" +
              changed),
      facts));
}

TEST(ExerciseOverhead, EachWrongNumberIsNamed) {
  EXPECT_EQ(overhead_with(""), "");
  EXPECT_THAT(overhead_with("exposed_ms=0.006\n"),
              HasSubstr("the ranks recorded 6 ms of exposed all_reduce"));
  EXPECT_THAT(overhead_with("share_percent=0.5\n"), HasSubstr("that is 50 %"));
  EXPECT_THAT(overhead_with("speed_up_at_most=1.5\n"), HasSubstr("2 times as fast"));
}

TEST(ExerciseOverhead, AChangeThatDoesNotHelpOrComputesLessIsNamed) {
  OverheadFacts facts = kOverhead;
  facts.exposed_after = 0.005;
  EXPECT_THAT(overhead_with("", facts), HasSubstr("that is not half as much"));
  facts = kOverhead;
  facts.changed_keys = {"train.global_batch"};
  EXPECT_THAT(overhead_with("", facts), HasSubstr("change one key of [comm]"));
  facts.changed_keys = {"comm.engine", "comm.bucket_bytes"};
  EXPECT_THAT(overhead_with("", facts),
              HasSubstr("these keys differ: comm.engine, comm.bucket_bytes"));
  facts.changed_keys = {};
  EXPECT_THAT(overhead_with("", facts),
              HasSubstr("the folder before has comm.engine=shm already: nothing was changed"));
  facts = kOverhead;
  facts.engine = "shm";
  EXPECT_THAT(overhead_with("", facts), HasSubstr("was trained with comm.engine=shm"));
}

TEST(ExerciseOverhead, OnlyTheKeyThatTheScriptChangesMayMakeTheDifference) {
  // comm.check_every has its default, and the engine fell back to the faster one.
  EXPECT_THAT(overhead_with("change=comm.check_every=100\n"),
              HasSubstr("these keys differ: comm.engine; the script changes comm.check_every"));
  EXPECT_THAT(overhead_with("change=comm.engine\n"),
              HasSubstr("change=comm.engine is no key with a value"));
  EXPECT_THAT(overhead_with("change=comm.engin=shm\n"), HasSubstr("is no key with a value"));
}

TEST(ExerciseOverhead, AnEngineThatIsLeftToTheRunPasses) {
  EXPECT_EQ(overhead_with("change=comm.engine=auto\n"), "");
}

TEST(ExerciseOverhead, ARunThatWasKeptFromAnotherChangeIsNamedAlone) {
  EXPECT_EQ(overhead_with("change=comm.bucket_bytes=64KiB\nexposed_ms=1\n"),
            "after/ was trained with comm.bucket_bytes=26214400, but overhead.sh says "
            "comm.bucket_bytes=64KiB (rm -r after, and run the script again)\n");
  EXPECT_EQ(overhead_with("change=comm.engine=gloo\n"),
            "after/ was trained with comm.engine=shm, but overhead.sh says comm.engine=gloo "
            "(rm -r after, and run the script again)\n");
}

const ImagesFacts kImages{.folder_images = 240,
                          .folder_classes = 4,
                          .file_samples = 240,
                          .file_mistakes = {},
                          .trained_on_file = true,
                          .trained_on = "photos.beton",
                          .train_samples = 216,
                          .global_batch = 32,
                          .validation_loss = 0.35};

std::string images_with(const std::string& changed, ImagesFacts facts = kImages) {
  return missing(judge_images(
      Answers("source=data.files=photos.beton\nclasses=4\nsteps_per_epoch=6.75\n" + changed),
      facts));
}

TEST(ExerciseImages, AnotherFileARunOnOtherDataAndGuessingAreNamed) {
  EXPECT_EQ(images_with(""), "");
  ImagesFacts facts = kImages;
  facts.file_samples = 200;
  EXPECT_THAT(images_with("", facts), HasSubstr("200 samples, the folder photos 240 images"));
  facts = kImages;
  facts.file_mistakes = {"page 0: checksum"};
  EXPECT_THAT(images_with("", facts), HasSubstr("photos.beton: page 0: checksum"));
  facts = kImages;
  facts.trained_on_file = false;
  facts.trained_on = "shapes.beton";
  EXPECT_THAT(images_with("source=data.files=shapes.beton\n", facts),
              HasSubstr("the run has learned shapes.beton, not photos.beton"));
  facts = kImages;
  facts.validation_loss = 1.38;
  EXPECT_THAT(images_with("", facts), HasSubstr("guessing among 4 classes has 1.39"));
}

TEST(ExerciseImages, ARunThatWasKeptFromAnotherFileIsNamedAlone) {
  ImagesFacts facts = kImages;
  facts.trained_on_file = false;
  facts.trained_on = "shapes.beton";
  EXPECT_EQ(images_with("source=data.text=photos.beton\n"),
            "run/ was trained with photos.beton, but images.sh says data.text=photos.beton "
            "(rm -r run, and run the script again)\n");
  EXPECT_THAT(images_with("source=\n"), HasSubstr("no line source=KEY=VALUE was printed"));
  EXPECT_EQ(images_with("classes=10\n", facts),
            "run/ was trained with shapes.beton, but images.sh says data.files=photos.beton "
            "(rm -r run, and run the script again)\n");
}

TEST(ExerciseImages, EachWrongNumberIsNamed) {
  EXPECT_THAT(images_with("classes=10\n"), HasSubstr("classes=10 is not right"));
  EXPECT_THAT(images_with("steps_per_epoch=7.5\n"),
              testing::AllOf(HasSubstr("216 training samples in global batches of 32 are 6.75"),
                             HasSubstr("do not round")));
}

const HangFacts kHang{
    .verdict =
        "group world: operation 4 of group 1: rank 0 waited 2.01 s in all_reduce(sum, float32, "
        "1000 elements) at hang.cpp:27; absent rank 1: its last call here was operation 3",
    .totals = {28, 28}};

std::string hang_with(const std::string& answers, const HangFacts& facts = kHang) {
  return missing(
      judge_hang(Answers("// absent_rank=1\n// absent_call=all_reduce\n" + answers), facts));
}

TEST(ExerciseHang, AWrongRankOrCallIsNamed) {
  EXPECT_EQ(hang_with(""), "");
  EXPECT_EQ(hang_with("absent_call=all_reduce(sum, float32, 1000 elements)\n"), "");
  EXPECT_THAT(hang_with("absent_rank=0\n"),
              HasSubstr("absent_rank=0 is not right: rank 1 was absent"));
  EXPECT_THAT(hang_with("absent_call=barrier\n"), HasSubstr("the others waited in all_reduce"));
}

TEST(ExerciseHang, AProgramThatHangsFailsOrDropsABatchIsNamed) {
  HangFacts facts = kHang;
  facts.last_words = "rank 0 waited 4 s in all_reduce(...); absent rank 1";
  facts.exit_code = 5;
  EXPECT_THAT(hang_with("", facts), HasSubstr("the program still hangs: rank 0 waited 4 s"));
  facts.last_words = "";
  facts.timed_out = true;
  EXPECT_THAT(hang_with("", facts), HasSubstr("still hangs"));
  facts = kHang;
  facts.exit_code = 6;
  facts.last_words = "rank 1 has left";
  EXPECT_THAT(hang_with("", facts), HasSubstr("ends with code 6: rank 1 has left"));
  facts = kHang;
  facts.totals = {21, 21};
  EXPECT_THAT(hang_with("", facts),
              HasSubstr("rank 1 has the total 21, and all batches together are 28"));
  EXPECT_EQ(count_missing(judge_hang(Answers("absent_rank=1\nabsent_call=all_reduce\n"), facts)),
            2U);
  facts.totals = {28};
  EXPECT_THAT(hang_with("", facts), HasSubstr("1 of 2 ranks printed"));
  facts.verdict = "nothing";
  EXPECT_THAT(hang_with("", facts), HasSubstr("did not hang here"));
}

}  // namespace
}  // namespace hanji::cli
