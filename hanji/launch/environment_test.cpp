#include "hanji/launch/environment.h"

#include <gmock/gmock.h>

#include <map>

namespace hanji::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Table = std::map<std::string, std::string>;

Lookup in(const Table& table) {
  return [table](base::Variable variable) -> std::optional<std::string> {
    const auto found = table.find(std::string(base::spec_of(variable).name));
    if (found == table.end()) return {};
    return found->second;
  };
}

Identity identity_in(const Table& table) {
  const auto identity = detect(in(table));
  EXPECT_TRUE(identity.ok()) << identity.status().to_string();
  return identity.ok() ? *identity : Identity{};
}

std::string refusal_of(const Table& table) {
  const auto identity = detect(in(table));
  EXPECT_EQ(identity.status().code(), Code::kInvalidArgument);
  return identity.status().message();
}

const Table kTorchrun = {{"RANK", "3"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "none"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Table kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"PMIX_RANK", "1"},
                        {"PMIX_NAMESPACE", "1939537921"}};
const Table kSrun = {{"SLURM_PROCID", "5"},  {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "16"},
                     {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_JOB_ID", "77"},
                     {"SLURM_STEP_ID", "3"}};

Table with(Table table, const Table& more) {
  for (const auto& [name, value] : more) table[name] = value;
  return table;
}

Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

TEST(Environment, EmptyMeansAlone) {
  const Identity identity = identity_in({{"RANK", ""}});
  EXPECT_EQ(identity.source, Source::kAlone);
  EXPECT_EQ(identity.rank, 0);
  EXPECT_EQ(identity.world_size, 1);
  EXPECT_EQ(identity.job_id, "");
}

TEST(Environment, HanjiTellsRankAndSize) {
  const Identity identity = identity_in(
      {{"HANJI_ENDPOINTS", "rank=2,size=3,segment=5,control=6,plan=-1,same_program=0"}});
  EXPECT_EQ(identity.source, Source::kHanji);
  EXPECT_EQ(identity.rank, 2);
  EXPECT_EQ(identity.world_size, 3);
  EXPECT_EQ(identity.local_size, 3);
}

TEST(Environment, HanjiRefusesWhatItDidNotWrite) {
  for (const char* text :
       {"x", "rank=0", "rank=3,size=3,segment=5,control=6,plan=-1,same_program=0",
        "rank=0,size=1,segment=5,control=6,plan=-1,same_program=0,more=1",
        "rank=0,size=1,segment=5,control=6,plan=-1,same_program=7",
        "rank=-1,size=1,segment=5,control=6,plan=-1,same_program=0"}) {
    EXPECT_THAT(refusal_of({{"HANJI_ENDPOINTS", text}}), HasSubstr(text));
  }
}

TEST(Environment, TorchrunTellsAllFour) {
  const Identity identity = identity_in(kTorchrun);
  EXPECT_EQ(identity.source, Source::kTorchrun);
  EXPECT_EQ(identity.rank, 3);
  EXPECT_EQ(identity.world_size, 4);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
}

TEST(Environment, OpenMpiTellsAllFour) {
  const Identity identity = identity_in(kOpenMpi);
  EXPECT_EQ(identity.source, Source::kMpirun);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.world_size, 2);
  EXPECT_THAT(identity.job_id, HasSubstr("PMIX_NAMESPACE=1939537921"));
}

TEST(Environment, MpichTellsAllFour) {
  const Identity identity = identity_in({{"PMI_RANK", "1"},
                                         {"PMI_SIZE", "3"},
                                         {"MPI_LOCALRANKID", "0"},
                                         {"MPI_LOCALNRANKS", "2"},
                                         {"MASTER_PORT", "5"}});
  EXPECT_EQ(identity.source, Source::kMpirun);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.local_rank, 0);
  EXPECT_EQ(identity.local_size, 2);
}

TEST(Environment, SrunCountsTheTasksOfTheStepAndNotOfTheJob) {
  const Identity identity = identity_in(kSrun);
  EXPECT_EQ(identity.source, Source::kSrun);
  EXPECT_EQ(identity.rank, 5);
  EXPECT_EQ(identity.world_size, 8);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 4);  // 8 tasks on 2 hosts
  EXPECT_THAT(identity.job_id, AllOf(HasSubstr("SLURM_JOB_ID=77"), HasSubstr("SLURM_STEP_ID=3")));
}

TEST(Environment, ABatchScriptIsNoTaskOfSrun) {
  EXPECT_EQ(identity_in(without(kSrun, "SLURM_STEP_ID")).source, Source::kAlone);
}

TEST(Environment, LocalNumbersDefaultToTheWorlds) {
  const Identity identity =
      identity_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
}

TEST(Environment, RestartsAndPortsSeparateJobs) {
  const std::string id = identity_in(kTorchrun).job_id;
  EXPECT_EQ(id, identity_in(with(kTorchrun, {{"RANK", "2"}, {"LOCAL_RANK", "0"}})).job_id);
  for (const Table& change :
       {Table{{"TORCHELASTIC_RESTART_COUNT", "3"}}, Table{{"MASTER_PORT", "29501"}},
        Table{{"TORCHELASTIC_RUN_ID", "other"}}}) {
    EXPECT_NE(id, identity_in(with(kTorchrun, change)).job_id);
  }
}

TEST(Environment, AJobWithoutAnIdIsRefused) {
  EXPECT_THAT(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_PORT"));
}

TEST(Environment, AnIncompleteSetIsRefusedWithAllOfItShown) {
  EXPECT_THAT(refusal_of({{"RANK", "1"}}),
              AllOf(HasSubstr("RANK=1"), HasSubstr("WORLD_SIZE (not set)")));
  EXPECT_THAT(refusal_of({{"PMIX_RANK", "1"}}), HasSubstr("PMIX_RANK=1"));
}

TEST(Environment, NumbersOutOfRangeAreRefused) {
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK=4 WORLD_SIZE=4"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "-1"}})), HasSubstr("RANK=-1"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"RANK", "1x"}})), HasSubstr("RANK=1x"));
  EXPECT_THAT(refusal_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})), HasSubstr("LOCAL_RANK=2"));
  EXPECT_THAT(refusal_of(with(kSrun, {{"SLURM_STEP_NUM_NODES", "0"}})), HasSubstr("host"));
}

TEST(Environment, ContradictingLaunchersAreRefusedWithAllShown) {
  EXPECT_THAT(refusal_of(with(kTorchrun, kOpenMpi)),
              AllOf(HasSubstr("RANK=3 WORLD_SIZE=4"), HasSubstr("OMPI_COMM_WORLD_RANK=1"),
                    HasSubstr("torchrun"), HasSubstr("mpirun")));
}

TEST(Environment, LaunchersThatAgreeAreOne) {
  const Identity identity = identity_in(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
  EXPECT_EQ(identity.source, Source::kMpirun);
  EXPECT_EQ(identity.rank, 1);
  EXPECT_EQ(identity.world_size, 2);
}

TEST(Environment, AnOuterLauncherOfOneProcessYields) {
  const Table outer = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}};
  EXPECT_EQ(identity_in(with(kTorchrun, outer)).rank, 3);
  EXPECT_EQ(identity_in(with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})).rank, 1);
}

TEST(Environment, IdentityVariablesAreAllThatDetectNeeds) {
  Table table = with(with(kTorchrun, kOpenMpi), kSrun);
  table["HANJI_ENDPOINTS"] = "rank=0,size=9,segment=5,control=6,plan=-1,same_program=0";
  for (const base::Variable variable : identity_variables()) {
    table.erase(std::string(base::spec_of(variable).name));
  }
  EXPECT_EQ(identity_in(table).source, Source::kAlone);
}

}  // namespace
}  // namespace hanji::launch
