#include "hanji/plan/load_config.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>

#include "hanji/base/fd.h"
#include "hanji/plan/named_algorithms.h"
#include "hanji/plan/nccl_variables.h"
#include "hanji/plan/schema.h"

namespace hanji::plan {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> mistakes_in(const LoadedConfig& loaded) {
  std::vector<std::string> texts;
  for (const ConfigMistake& mistake : loaded.mistakes) texts.push_back(mistake.to_string());
  return texts;
}

TEST(LoadConfig, NothingGivesTheDefaults) {
  const LoadedConfig loaded = parse_config("", "run.toml");
  EXPECT_THAT(loaded.mistakes, IsEmpty());
  EXPECT_THAT(loaded.origins, IsEmpty());
  const Config defaults;
  for (const Key& key : schema()) EXPECT_EQ(key.get(loaded.config), key.get(defaults)) << key.name;
}

TEST(LoadConfig, AScheduleIsReadFromItsFileOrAllItsMistakesAreNamed) {
  const std::string file = testing::TempDir() + "lines.csv";
  const auto loaded = [&](const std::string& text) {
    std::ofstream(file) << text;
    return load_config({.overrides = {{"pipeline.schedule=" + file}, {"mesh.pp=2"}}});
  };
  const LoadedConfig good = loaded("0F0, 0B0,\r\n1F0, 1B0\n\n");
  EXPECT_THAT(mistakes_in(good), IsEmpty());
  EXPECT_EQ(good.config.pipeline.schedule, PipelineKind::kUser);
  EXPECT_EQ(good.config.pipeline.lines, "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(parse_config(print_config(good), "printed").config.pipeline.lines,
            good.config.pipeline.lines);
  EXPECT_THAT(mistakes_in(loaded("0F0,0X0\n1F0,1B\n")),
              ElementsAre(HasSubstr("lines.csv: line 1, cell 2: '0X0' is no computation"),
                          HasSubstr("lines.csv: line 2, cell 2: '1B' is no computation")));
  EXPECT_THAT(mistakes_in(parse_config("mesh.pp = 2\npipeline.schedule = '''0F0,0X0\n1F0,1B\n'''",
                                       "run.toml")),
              ElementsAre(AllOf(HasSubstr("line 1, cell 2: '0X0' is no"), Not(HasSubstr("\n"))),
                          HasSubstr("line 2, cell 2: '1B' is no computation")));
  EXPECT_THAT(mistakes_in(load_config({.overrides = {{"pipeline.schedule=1f1"}, {"mesh.pp=2"}}})),
              ElementsAre(HasSubstr("unknown schedule '1f1'; schedules: naive, gpipe, 1f1b")));
}

TEST(LoadConfig, EveryTypeOfValueArrives) {
  const LoadedConfig loaded = parse_config(R"(
[run]
out = "runs/one"
[model]
preset = "baby"
tied = false
[train]
steps = 1_000
learning_rate = 3e-4
weight_decay = 1
micro_batch = "auto"
schedule = "wsd"
split = [1, 2.5]
[comm]
bucket_bytes = "2MiB"
deadline = "5m"
)",
                                           "run.toml");
  EXPECT_THAT(mistakes_in(loaded), IsEmpty());
  const Config& c = loaded.config;
  EXPECT_EQ(c.run.out, "runs/one");
  EXPECT_EQ(c.model.preset, "baby");
  EXPECT_FALSE(c.model.tied);
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.train.learning_rate, 3e-4);
  EXPECT_EQ(c.train.weight_decay, 1);
  EXPECT_EQ(c.train.micro_batch, kAuto);
  EXPECT_EQ(c.train.schedule, LearningRateSchedule::kWarmupStableDecay);
  EXPECT_THAT(c.train.split, ElementsAre(1, 2.5));
  EXPECT_EQ(c.comm.bucket_bytes, 2 << 20);
  EXPECT_EQ(c.comm.deadline, 300);
}

TEST(LoadConfig, TheCommandLineIsStrongerAndLaterIsStronger) {
  const std::array overrides = {Override{"train.steps=20"}, Override{"train.steps=30", "--steps"},
                                Override{"data.text=a b.txt", "--text"},
                                Override{"comm.deadline=250ms"}, Override{"train.split=[.5,.5]"}};
  const LoadedConfig loaded = parse_config("[train]\nsteps = 10\nseed = 3\n", "f", overrides);
  EXPECT_THAT(mistakes_in(loaded), IsEmpty());
  EXPECT_EQ(loaded.config.train.steps, 30);
  EXPECT_EQ(loaded.config.data.text, "a b.txt");
  EXPECT_EQ(loaded.config.comm.deadline, 0.25);
  EXPECT_EQ(loaded.origins.at("train.steps").to_string(), "--steps");
  EXPECT_EQ(loaded.origins.at("train.seed").to_string(), "f:3:1");
}

TEST(LoadConfig, TheMeshIsGivenAsOneText) {
  const LoadedConfig loaded =
      load_config({.overrides = {{"parallel.data=hsdp"}}, .mesh = "dp=2,fsdp=2,tp=4"});
  EXPECT_THAT(mistakes_in(loaded), IsEmpty());
  const MeshConfig& mesh = loaded.config.mesh;
  EXPECT_THAT((std::array{mesh.dp, mesh.fsdp, mesh.tp, mesh.cp}), ElementsAre(2, 2, 4, 1));
  EXPECT_EQ(loaded.origins.at("mesh.tp").to_string(), "--mesh");
}

TEST(LoadConfig, AllMistakesOfTheMeshAreNamedAtOnce) {
  const LoadedConfig loaded = load_config({.overrides = {{"mesh.dp=2"}},
                                           .mesh = "dp=3,xp=2,tensor=2,cp,,=2,ep=2,pp=two,tp=0,"
                                                   "fsdp=1,fsdp=1"});
  EXPECT_THAT(
      mistakes_in(loaded),
      ElementsAre(
          "--mesh: mesh.dp is set twice, by --set too; give it once",
          "--mesh: mesh.xp: unknown key; did you mean mesh.dp?",
          "--mesh: mesh.tensor: unknown key; keys of [mesh]: dp, fsdp, pp, cp, tp, axial",
          "--mesh: 'cp' is not an axis with its degree; write AXIS=N, as in --mesh dp=2,tp=2",
          "--mesh: '' is not an axis with its degree; write AXIS=N, as in --mesh dp=2,tp=2",
          "--mesh: '=2' is not an axis with its degree; write AXIS=N, as in --mesh dp=2,tp=2",
          "--mesh: mesh.ep is rejected: no model here has experts that ranks could share out; "
          "leave "
          "it out",
          "--mesh: mesh.pp must be an integer, 1 to 65536 (ranks), not \"two\"",
          "--mesh: mesh.tp is 0, but must be at least 1 (ranks)",
          "--mesh: mesh.fsdp is set twice, by --mesh too; give it once"));
}

TEST(PrintConfig, ShowsOriginsAndReadsBackAsItself) {
  const std::array overrides = {Override{"train.steps=20"}, Override{"run.out=a \"b\" \\ c"}};
  const LoadedConfig loaded = parse_config("[train]\nseed = 3\n", "run.toml", overrides);
  const std::string text = print_config(loaded);
  EXPECT_THAT(text, HasSubstr("steps = 20                                # --set\n"));
  EXPECT_THAT(text, HasSubstr("seed = 3                                  # run.toml:2:1\n"));
  EXPECT_THAT(text, HasSubstr("layers = 4                                # preset char\n"));
  EXPECT_THAT(text, HasSubstr("clip = 1                                  # default\n"));
  const LoadedConfig again = parse_config(text, "printed");
  EXPECT_THAT(mistakes_in(again), IsEmpty());
  for (const Key& key : schema()) {
    if (key.name.starts_with("model.")) continue;  // the preset's sizes are set now
    EXPECT_EQ(key.get(again.config), key.get(loaded.config)) << key.name;
  }
}

TEST(LoadConfig, NamedAlgorithmsAreATableInATable) {
  for (const char* text : {"[comm.algorithm]\nall_reduce = \"staged\"\n",
                           "[comm]\nalgorithm.all_reduce = \"staged\"\n"}) {
    const LoadedConfig loaded = parse_config(text, "run.toml");
    EXPECT_THAT(mistakes_in(loaded), IsEmpty());
    EXPECT_EQ(loaded.config.comm.algorithm.at("all_reduce"), "staged");
    const auto named = named_algorithms(loaded.config.comm);
    ASSERT_EQ(named.size(), 1u);
    EXPECT_EQ(named.at(schedule::Routine::kAllReduce), "staged");
  }
}

constexpr std::string_view kImageFile =
    "[model]\npreset = \"resnet-tiny\"\n[data]\nfiles = \"x\"\n";

TEST(LoadConfig, StagesAreAListOfTablesOrOneText) {
  const std::string head(kImageFile);
  const LoadedConfig tables = parse_config(
      head +
          "[[data.stage]]\nname = \"center_crop\"\nratio = 1\n[[data.stage]]\nname = \"flip\"\n"
          "[[data.stage]]\nname = \"normalise\"\nmean = [0.5, 0.25, 0]\n",
      "run.toml");
  EXPECT_THAT(mistakes_in(tables), IsEmpty());
  const ImageStages stages = parse_image_stages(tables.config.data.stage).or_throw();
  EXPECT_EQ(std::get<CenterCrop>(stages.crop).ratio, 1);
  EXPECT_EQ(stages.flip_probability, 0.5);
  EXPECT_EQ(stages.mean[1], 0.25);
  EXPECT_EQ(tables.config.data.images, Images::kNone) << "the file takes their place";
  const LoadedConfig text = parse_config(print_config(tables), "printed");
  EXPECT_THAT(mistakes_in(text), IsEmpty());
  EXPECT_EQ(text.config.data.stage, tables.config.data.stage);
}

TEST(LoadConfig, MistakesInStagesAreThoseOfTheKey) {
  const std::string head(kImageFile);
  const auto messages = mistakes_in(parse_config(
      head + "[[data.stage]]\nname = \"center_crop\"\nratio = 7\n[[data.stage]]\nname = \"flop\"\n",
      "run.toml"));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], HasSubstr("run.toml:5:8: data.stage: center_crop.ratio is \"7\""));
  EXPECT_THAT(messages[0], HasSubstr("\"flop\" is no stage"));
  const auto without_names = mistakes_in(parse_config(
      head + "stage = [{ratio = 1}, 5, {name = \"flip\", probability = 2}, {name = 3}]\n",
      "run.toml"));
  ASSERT_EQ(without_names.size(), 1u);
  for (const char* one : {"data.stage: \"[0] without a name\" is no stage; stages are random_",
                          "; \"[1] is no table\" is no stage; ", "flip.probability is \"2\"",
                          "; \"[3] without a name\" is no stage"}) {
    EXPECT_THAT(without_names[0], HasSubstr(one));
  }
  EXPECT_THAT(mistakes_in(parse_config(head + "stage = 5\n", "run.toml"))[0],
              HasSubstr("data.stage must be stages like"));
}

TEST(LoadConfig, AllBadAlgorithmsAreNamedAtOnce) {
  const auto messages = mistakes_in(parse_config(
      "[comm.algorithm]\nall_reduce = \"stagd\"\nbroadcast = \"ring\"\nall_gater = \"flat\"\n",
      "run.toml"));
  ASSERT_EQ(messages.size(), 3u);
  const std::string all = messages[0] + messages[1] + messages[2];
  EXPECT_THAT(all, HasSubstr("did you mean comm.algorithm.all_gather?"));
  EXPECT_THAT(all, HasSubstr("did you mean staged?"));
  EXPECT_THAT(all, HasSubstr("broadcast has no algorithm 'ring' in shared memory"));
}

TEST(LoadConfig, AnAlgorithmThatLosesTheOrderIsRefusedUnlessBitsAreFast) {
  const std::string text =
      "[run]\nranks = 4\n[comm]\nengine = \"gloo\"\nalgorithm.all_reduce = \"ring\"\n";
  const auto messages = mistakes_in(parse_config(text, "run.toml"));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(messages[0], HasSubstr("another order"));
  EXPECT_THAT(mistakes_in(parse_config(text + "[train]\nbits = \"fast\"\n", "run.toml")),
              IsEmpty());
}

TEST(NcclVariables, AreATableWhoseNamesAreChecked) {
  const LoadedConfig loaded = parse_config(
      "[compute]\ndevice = \"cuda\"\n"
      "[comm.nccl]\nNCCL_SOCKET_IFNAME = \"eth0\"\nNCCL_NVLS_ENABLE = 0\n",
      "run.toml");
  EXPECT_THAT(mistakes_in(loaded), IsEmpty());
  EXPECT_EQ(loaded.config.comm.nccl.at("NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(loaded.config.comm.nccl.at("NCCL_NVLS_ENABLE"), "0");
  const std::string printed = print_config(loaded);
  EXPECT_THAT(printed, HasSubstr("nccl.NCCL_SOCKET_IFNAME = \"eth0\""));
  EXPECT_THAT(printed, testing::Not(HasSubstr("NCCL_ALGO")));
  EXPECT_EQ(parse_config(printed, "printed").config.comm.nccl, loaded.config.comm.nccl);
  const auto bad = mistakes_in(parse_config(
      "[compute]\ndevice = \"cuda\"\n[comm.nccl]\nSOCKET_IFNAME = \"a\"\nNCCL_IB_HAC = \"b\"\n",
      "run.toml"));
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_THAT(bad[0] + bad[1], HasSubstr("did you mean comm.nccl.NCCL_SOCKET_IFNAME?"));
  EXPECT_THAT(bad[0] + bad[1], HasSubstr("did you mean comm.nccl.NCCL_IB_HCA?"));
}

TEST(NcclVariables, WhatTheEnvironmentSaysOtherwiseIsTold) {
  Config config;
  config.comm.nccl = {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}};
  const std::vector<base::NamedValue> environment = {
      {"NCCL_ALGO", "Tree"}, {"NCCL_PROTO", "LL"}, {"NCCL_DEBUG", "INFO"}};
  const auto lines = overridden_variables(config, environment);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("NCCL_ALGO is \"Tree\" in the environment and \"Ring\""));
}

TEST(LoadConfig, TilesOfAnotherDtypeThanBf16AreRefused) {
  const std::string tiles = "[compute]\nattention = \"tiles\"\n";
  EXPECT_THAT(mistakes_in(parse_config(tiles + "dtype = \"bf16\"\n", "run.toml")),
              testing::IsEmpty());
  for (const std::string dtype : {"float32", "float64"}) {
    EXPECT_THAT(
        mistakes_in(parse_config(tiles + "dtype = \"" + dtype + "\"\n", "run.toml")),
        testing::ElementsAre(HasSubstr("tiles multiplies bf16, but compute.dtype = " + dtype)));
  }
}

TEST(LoadConfig, WhatADeviceCannotDoIsRefused) {
  const auto said = [](const std::string& text) {
    const auto messages = mistakes_in(parse_config(text, "run.toml"));
    return messages.size() == 1 ? messages[0] : testing::PrintToString(messages);
  };
  EXPECT_THAT(said("[compute]\ndevice = \"gpu\"\n"), HasSubstr("it is spelt cuda here"));
  EXPECT_THAT(said("[compute]\ndevice = \"cuda:0\"\n"), HasSubstr("CUDA_VISIBLE_DEVICES"));
  const std::string cuda = "[compute]\ndevice = \"cuda\"\n";
  EXPECT_EQ(said(cuda), "{}");
  EXPECT_THAT(said(cuda + "gemm = \"onednn\"\n"), HasSubstr("multiplies on CPUs"));
  EXPECT_THAT(said(cuda + "attention = \"math\"\n"), HasSubstr("is a kernel for CPUs"));
  EXPECT_THAT(said(cuda + "attention = \"tiles\"\ndtype = \"bf16\"\n"),
              HasSubstr("is a kernel for CPUs"));
  EXPECT_THAT(said(cuda + "[comm]\nengine = \"shm\"\n"), HasSubstr("moves tensors of CPUs"));
  EXPECT_THAT(said(cuda + "[train]\nbits = \"stable\"\n"),
              HasSubstr("carries out for tensors of compute.device"));
  EXPECT_THAT(said("[comm]\nengine = \"nccl\"\n"), HasSubstr("set compute.device = \"cuda\""));
  EXPECT_THAT(said("[comm.nccl]\nNCCL_ALGO = \"Ring\"\n"), HasSubstr("nothing goes through NCCL"));
}

TEST(Schema, EveryDefaultIsWithinItsOwnRange) {
  const Config defaults;
  for (const Key& key : schema()) {
    EXPECT_TRUE(check_value(key, key.get(defaults)).ok()) << key.name;
    EXPECT_FALSE(key.doc.empty()) << key.name;
    const std::string text = format_value(key, key.get(defaults));
    const auto back = parse_value(key, text);
    ASSERT_TRUE(back.ok()) << key.name << " " << text << " " << back.status().message();
    EXPECT_EQ(*back, key.get(defaults)) << key.name;
  }
  EXPECT_THAT(find_contradictions(defaults), IsEmpty());
}

TEST(Schema, EveryKeyLiesInATableAndIsNamedOnce) {
  for (const Key& key : schema()) {
    const auto table = key.name.substr(0, key.name.find('.'));
    EXPECT_NE(std::ranges::find(tables(), table), tables().end()) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
  }
}

TEST(Schema, MarkdownHasOneRowPerKey) {
  const std::string text = schema_markdown();
  for (const Key& key : schema()) {
    EXPECT_THAT(text, HasSubstr("| `" + std::string(key.name) + "` |"));
  }
  EXPECT_THAT(text, HasSubstr("| `train.steps` | an integer, at least 1 (steps) | `1000` |"));
}

class DataFiles : public testing::Test {
 protected:
  DataFiles()
      : folder_(std::filesystem::temp_directory_path() /
                ("hanji_config_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_ / "empty_folder");
    std::ofstream(folder_ / "empty.txt");
    std::ofstream(folder_ / "text.txt") << "to be";
    std::ofstream(folder_ / "binary.txt") << std::string("to\0be", 5);
  }
  ~DataFiles() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> load(const std::string& key, const std::string& name) {
    const std::string path = (folder_ / name).string();
    return mistakes_in(load_config({{}, {{key + "=" + path, "--set"}}}));
  }

  std::filesystem::path folder_;
};

TEST_F(DataFiles, TextsThatAreThereAreFine) {
  EXPECT_THAT(load("data.text", "text.txt"), IsEmpty());
  EXPECT_THAT(load("data.text", "."), IsEmpty());
  EXPECT_THAT(load("data.tokens", "binary.txt"), IsEmpty());
  EXPECT_THAT(load("data.tokens", "prefix"), IsEmpty()) << "of prefix.bin and prefix.idx";
}

TEST_F(DataFiles, MissingAndEmptyFilesAreMistakes) {
  EXPECT_THAT(load("data.text", "none.txt"), ElementsAre(HasSubstr("cannot read")));
  EXPECT_THAT(load("data.text", "empty.txt"), ElementsAre(HasSubstr("is empty")));
  EXPECT_THAT(load("data.files", "."), ElementsAre(HasSubstr("is a folder")));
  EXPECT_THAT(load("data.files", "none.beton"), ElementsAre(HasSubstr("cannot read")));
}

TEST_F(DataFiles, WhatOneProcessAloneCanOpenIsNamedForAllRanks) {
  const base::Fd file(::open((folder_ / "text.txt").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string path = "/dev/fd/" + std::to_string(file.get());
  for (const char* key : {"data.text", "data.tokens", "data.files", "model.init"}) {
    const LoadedConfig loaded = load_config({{}, {{std::string(key) + "=" + path, "--set"}}});
    const Config& config = loaded.config;
    EXPECT_EQ(config.data.text + config.data.tokens + config.data.files + config.model.init,
              std::filesystem::canonical(folder_ / "text.txt"));
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const base::Fd reader(ends[0]), writer(ends[1]);
    const std::string stream = std::string(key) + "=/dev/fd/" + std::to_string(reader.get());
    const auto mistakes = mistakes_in(load_config({{}, {{stream, "--set"}}}));
    ASSERT_FALSE(mistakes.empty());
    EXPECT_THAT(mistakes[0], HasSubstr("a stream that one process can read once"));
    EXPECT_THAT(mistakes[0], HasSubstr("write it to a file first"));
  }
}

TEST_F(DataFiles, AMissingConfigurationFileIsAMistakeToo) {
  const auto path = folder_ / "none.toml";
  EXPECT_THAT(mistakes_in(load_config({path, {}})),
              ElementsAre(AllOf(HasSubstr("none.toml"), HasSubstr("check the path"),
                                Not(HasSubstr("path; check the path")))));
}

TEST(HostileConfigs, AreAnsweredAndDoNotCrash) {
  const std::string deep = "a = " + std::string(100000, '[');
  const auto dotted = [](int dots) {
    std::string text = "a";
    for (int i = 0; i < dots; ++i) text += ".a";
    return text + " = 1";
  };
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "key" + std::to_string(i) + " = 1\n";
  const std::string long_word = "[train]\nschedule = \"" + std::string(500000, 'x') + "\"\n";
  const std::string huge(2 << 20, '#');
  for (const std::string& text :
       {deep, dotted(4000), dotted(500000), many, long_word, huge, std::string("\xff\xfe=1"),
        std::string("\0\0=\0", 4), std::string("[train]\n\"\\u0000\"=1")}) {
    EXPECT_FALSE(parse_config(text, "hostile").mistakes.empty()) << text.substr(0, 40);
  }
}

TEST(HostileConfigs, EveryCutAndFlipOfAGoodFileIsAnswered) {
  const std::string good = print_config(parse_config("", ""));
  for (size_t i = 0; i < good.size(); i += 5) {
    (void)parse_config(std::string_view(good).substr(0, i), "cut");
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x15);
    const LoadedConfig loaded = parse_config(flipped, "flipped");
    for (const Key& key : schema()) {
      EXPECT_TRUE(check_value(key, key.get(loaded.config)).ok()) << key.name;
    }
  }
}

TEST(ParseConfig, TextsOfAnyBytesComeBackFromWhatIsPrinted) {
  LoadedConfig loaded = parse_config("[data]\ntext = \"caf\\u0000e9/\u00e9\"\n", "job.toml");
  EXPECT_EQ(loaded.config.data.text, "caf\xE9/\xC3\xA9");
  const LoadedConfig again = parse_config(print_config(loaded), "again.toml");
  EXPECT_EQ(again.config.data.text, loaded.config.data.text);
}

}  // namespace
}  // namespace hanji::plan
