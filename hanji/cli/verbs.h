#pragma once

#include "hanji/cli/command_line.h"

namespace hanji::cli {

/// Each declares its verb on the command, with what it does once it was chosen. One file per verb,
/// named after it.
void add_train(Verb command);
void add_plan(Verb command);
void add_verify(Verb command);
void add_ckpt(Verb command);
void add_data(Verb command);
void add_generate(Verb command);
void add_run(Verb command);
void add_report(Verb command);
void add_top(Verb command);
void add_debug(Verb command);
void add_doctor(Verb command);
void add_simulate(Verb command);
void add_explain(Verb command);
/// `explain strategies`, `explain parallel`, `explain tp`, `explain axial`, `explain cp` and
/// `explain transpose`, on that verb.
void add_explain_strategies(Verb explain_verb);
void add_explain_parallel(Verb explain_verb);
void add_explain_tp(Verb explain_verb);
void add_explain_axial(Verb explain_verb);
void add_explain_cp(Verb explain_verb);
void add_explain_transpose(Verb explain_verb);
/// `explain h100` and the other words of plan::device_words(), of which one is listed.
void add_explain_device(Verb explain_verb);
void add_topo(Verb command);
void add_exercise(Verb command);
void add_bench(Verb command);
/// `bench scaling`, on that verb.
void add_bench_scaling(Verb bench_verb);
void add_completion(Verb command);
/// Hidden: what `train` starts once per rank.
void add_rank(Verb command);
/// Hidden: what a plan for GPUs starts to time one.
void add_time_gpu(Verb command);
/// Hidden: what `bench` starts once per rank.
void add_bench_rank(Verb command);
/// Hidden: what `verify` starts once per rank.
void add_verify_rank(Verb command);

}  // namespace hanji::cli
