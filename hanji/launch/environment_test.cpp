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

TEST(Environment, WithoutPlacesOnTheHostAllRanksAreTakenToBeHere) {
  const Identity identity =
      identity_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.local_size, 2);
  EXPECT_THAT(identity.assumption, HasSubstr("LOCAL_RANK and LOCAL_WORLD_SIZE are not set"));
  EXPECT_EQ(identity_in(kTorchrun).assumption, "");
}

TEST(Environment, WhatALauncherLacksIsNamed) {
  for (const Table& whole : {kTorchrun, without(kTorchrun, "TORCHELASTIC_RUN_ID"), kOpenMpi}) {
    for (const auto& [name, value] : whole) {
      const bool is_place = name.find("RANK") != name.npos || name.find("SIZE") != name.npos;
      if (!is_place || name == "PMIX_RANK") continue;
      EXPECT_THAT(refusal_of(without(whole, name)), HasSubstr(name + " is not set"));
    }
  }
  EXPECT_THAT(refusal_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}}),
              HasSubstr("MPI_LOCALNRANKS is not set"));
  EXPECT_THAT(refusal_of(without(kSrun, "SLURM_LOCALID")), HasSubstr("SLURM_LOCALID (not set)"));
  EXPECT_THAT(refusal_of(without(without(kSrun, "SLURM_NTASKS"), "SLURM_STEP_NUM_TASKS")),
              HasSubstr("SLURM_NTASKS (not set)"));
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

/// As launchers change the environment of a process that they start; hanji replaces all others.
Table torchrun_in(const Table& outer) { return with(outer, kTorchrun); }
Table mpirun_in(const Table& outer) { return with(outer, kOpenMpi); }
Table srun_in(const Table& outer) { return with(outer, kSrun); }
Table hanji_in(Table outer) {
  for (const base::Variable variable : identity_variables()) {
    outer.erase(std::string(base::spec_of(variable).name));
  }
  return with(outer,
              {{"HANJI_ENDPOINTS", "rank=2,size=3,segment=5,control=6,plan=-1,same_program=0"},
               {"RANK", "2"},
               {"WORLD_SIZE", "3"},
               {"LOCAL_RANK", "2"},
               {"LOCAL_WORLD_SIZE", "3"},
               {"MASTER_ADDR", "127.0.0.1"},
               {"MASTER_PORT", "29500"}});
}

struct Nested {
  std::string name;
  Table table;
  Source source;
  bool is_inherited = false;  ///< The socket of hanji.
  std::vector<std::string> others = {};
};

/// Every pair and triple in which one launcher can start the next.
std::vector<Nested> nestings() {
  const Table none;
  // One step of srun, one task per host, whose number is as torchrun's where that starts one rank too.
  const Table per_host = {{"SLURM_PROCID", "3"},  {"SLURM_STEP_NUM_TASKS", "4"},
                          {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NUM_NODES", "4"},
                          {"SLURM_NODEID", "3"},  {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "n[1-4]"}};
  const Table shell = with(kSrun, {{"SLURM_STEP_ID", "4294967290"}});
  const std::string srun = "srun (SLURM_PROCID=", mpirun = "mpirun (OMPI_COMM_WORLD_RANK=1";
  const std::string hanji = "hanji (HANJI_ENDPOINTS=";
  return {
      {"torchrun in srun", torchrun_in(srun_in(none)), Source::kTorchrun, false, {srun}},
      {"torchrun in srun of the same numbers",
       torchrun_in(per_host),
       Source::kTorchrun,
       false,
       {srun}},
      {"torchrun in mpirun", torchrun_in(mpirun_in(none)), Source::kTorchrun, false, {mpirun}},
      {"torchrun in mpirun in srun",
       torchrun_in(mpirun_in(srun_in(none))),
       Source::kTorchrun,
       false,
       {mpirun, srun}},
      {"torchrun in hanji", torchrun_in(hanji_in(none)), Source::kTorchrun, false, {hanji}},
      {"torchrun of one in srun",
       with(torchrun_in(srun_in(none)),
            {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}),
       Source::kTorchrun,
       false,
       {srun}},
      {"mpirun in srun", mpirun_in(srun_in(none)), Source::kMpirun, false, {srun}},
      {"mpirun in srun, one task per host", mpirun_in(per_host), Source::kMpirun, false, {srun}},
      {"mpirun in hanji", mpirun_in(hanji_in(none)), Source::kMpirun, false, {hanji}},
      {"mpirun in hanji in srun",
       mpirun_in(hanji_in(srun_in(none))),
       Source::kMpirun,
       false,
       {hanji}},
      {"srun alone", srun_in(none), Source::kSrun},
      {"srun in hanji", srun_in(hanji_in(none)), Source::kSrun, false, {hanji}},
      {"srun's PMI", with(srun_in(none), {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}), Source::kSrun},
      {"srun's PMIx", with(srun_in(none), {{"PMIX_RANK", "5"}}), Source::kSrun},
      {"hanji in srun", hanji_in(srun_in(none)), Source::kHanji, true},
      {"hanji in mpirun", hanji_in(mpirun_in(none)), Source::kHanji, true},
      {"hanji in torchrun", hanji_in(torchrun_in(none)), Source::kHanji, true},
      {"hanji in all", hanji_in(torchrun_in(mpirun_in(srun_in(none)))), Source::kHanji, true},
      {"hanji, others left in a script",
       torchrun_in(mpirun_in(srun_in(hanji_in(none)))),
       Source::kHanji,
       true,
       {mpirun, srun}},
      {"hanji whose descriptors are closed", hanji_in(none), Source::kHanji, false},
      {"a shell of salloc in a step", shell, Source::kAlone},
      {"a shell of salloc without a step", without(kSrun, "SLURM_STEP_ID"), Source::kAlone},
      {"torchrun in a shell of salloc", torchrun_in(shell), Source::kTorchrun},
      {"a stale RANK in srun", with(kSrun, {{"RANK", "0"}}), Source::kSrun, false, {"RANK=0"}},
      {"a stale RANK in mpirun",
       with(kOpenMpi, {{"RANK", "0"}}),
       Source::kMpirun,
       false,
       {"RANK=0"}},
      {"half of mpirun in srun",
       with(kSrun, {{"OMPI_COMM_WORLD_RANK", "1"}}),
       Source::kSrun,
       false,
       {"OMPI_COMM_WORLD_SIZE (not set)"}},
      {"half of mpirun in torchrun",
       with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "1"}}),
       Source::kTorchrun,
       false,
       {"OMPI_COMM_WORLD_SIZE (not set)"}},
      {"mpirun's numbers copied", with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
       Source::kMpirun},
      {"a stale run id in srun", with(kSrun, {{"TORCHELASTIC_RUN_ID", "x"}}), Source::kSrun},
  };
}

/// The place that each launcher's own variables tell: rank, size, place and number on the host.
std::vector<int> place_of(Source source) {
  switch (source) {
    case Source::kTorchrun: return {3, 4, 1, 2};
    case Source::kMpirun: return {1, 2, 1, 2};
    case Source::kSrun: return {5, 8, 1, 4};
    case Source::kHanji: return {2, 3, 2, 3};
    default: return {0, 1, 0, 1};
  }
}

TEST(Nesting, TheInnermostLauncherTellsAll) {
  for (const Nested& nested : nestings()) {
    const auto identity = detect(
        in(nested.table), [&](int descriptor) { return nested.is_inherited && descriptor == 6; });
    ASSERT_TRUE(identity.ok()) << nested.name << ": " << identity.status().message();
    EXPECT_EQ(identity->source, nested.source) << nested.name;
    const bool is_one = nested.name.find("torchrun of one") == 0;
    EXPECT_EQ((std::vector{identity->rank, identity->world_size, identity->local_rank,
                           identity->local_size}),
              is_one ? std::vector({0, 1, 0, 1}) : place_of(nested.source))
        << nested.name;
    EXPECT_EQ(identity->nesting.empty(), nested.others.empty()) << nested.name << identity->nesting;
    for (const std::string& other : nested.others) {
      EXPECT_THAT(identity->nesting, HasSubstr(other)) << nested.name;
    }
  }
}

TEST(Nesting, TheJobIsNamedByTheSameLauncher) {
  const auto job_of = [](const Table& table) { return identity_in(table).job_id; };
  const Table outer = srun_in(mpirun_in({}));
  EXPECT_EQ(job_of(torchrun_in(outer)), job_of(kTorchrun));
  // Open MPI starts daemons on other hosts by a step of its own, which its first host has not.
  const Table batch = with(kOpenMpi, {{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(job_of(mpirun_in(kSrun)), job_of(batch));
  EXPECT_NE(job_of(kSrun), job_of(with(kSrun, {{"SLURM_STEP_ID", "4"}})));
}

TEST(Nesting, AHanjiOfOneProcessYields) {
  const std::string one = "rank=0,size=1,segment=5,control=6,plan=-1,same_program=0";
  for (const Table& inner : {kTorchrun, kOpenMpi, kSrun}) {
    const auto identity =
        detect(in(with(inner, {{"HANJI_ENDPOINTS", one}})), [](int) { return true; });
    ASSERT_TRUE(identity.ok()) << identity.status().message();
    EXPECT_NE(identity->source, Source::kHanji);
  }
}

TEST(Nesting, RankAndSizeWithoutARunIdContradict) {
  const Table plain = without(kTorchrun, "TORCHELASTIC_RUN_ID");
  for (const Table& launcher : {kOpenMpi, kSrun}) {
    EXPECT_THAT(refusal_of(with(launcher, plain)),
                AllOf(HasSubstr("RANK=3 WORLD_SIZE=4"), HasSubstr("set TORCHELASTIC_RUN_ID")));
  }
  const Table one = {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}};
  EXPECT_EQ(identity_in(with(plain, one)).rank, 3);
  EXPECT_EQ(identity_in(with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})).rank, 1);
}

TEST(Environment, SrunTellsTheTasksOfEachHost) {
  const Table uneven = with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                    {"SLURM_STEP_NUM_NODES", "4"},
                                    {"SLURM_STEP_NUM_TASKS", "7"}});
  EXPECT_EQ(identity_in(with(uneven, {{"SLURM_NODEID", "2"}})).local_size, 2);
  const Table last = with(uneven, {{"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(identity_in(last).local_size, 1);
  for (const char* list : {"2(x3)", "2(x", "(x3)", "2(x-1),1", "x", ","}) {
    EXPECT_THAT(refusal_of(with(last, {{"SLURM_STEP_TASKS_PER_NODE", list}})), HasSubstr(list));
  }
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
