#include "hanji/plan/test_bad_config.h"

namespace hanji::plan {
namespace {

using test_plan::BadConfigs;

BadConfigs bad_syntax() {
  return {
      {"a nested table",
       "[train.optimizer]\nname = \"adam\"\n",
       {},
       {"run.toml:1:8: train.optimizer: unknown key; did you mean offload.optimizer?"}},
      {"a value where a table belongs",
       "train = 3\n",
       {},
       {"run.toml:1:1: train must be a table; write [train]"}},
      {"an array of tables",
       "[[train]]\nsteps = 3\n",
       {},
       {"run.toml:1:3: train must be a table; write [train]"}},
      {"an empty key",
       "[train]\n\"\" = 3\n",
       {},
       {"run.toml:2:1: train.: unknown key; see `hanji train --print-config`"}},
      {"quotes around a table and its key",
       "\"model.heads\" = 2\n[comm]\n'algorithm.all_reduce' = \"ring\"\n'no.key' = 1\n",
       {},
       {"run.toml:1:1: model.heads: a dot within quotes is a letter of the name; write model.heads "
        "without quotes",
        "run.toml:3:1: comm.algorithm.all_reduce: a dot within quotes is a letter of the name; "
        "write comm.algorithm.all_reduce without quotes",
        "run.toml:4:1: comm.no.key: unknown key; see `hanji train --print-config`"}},
      {"no quotes around text",
       "[model]\npreset = nano\n",
       {},
       {"run.toml:2:13: Error while parsing floating-point: expected value-terminator, saw 'o'; "
        "text needs quotes, as in preset = \"char\""}},
      {"a letter that no bare key may have",
       "[model]\npres\xC3\xA9t = \"nano\"\n",
       {},
       {"run.toml:2:5: Error while parsing key-value pair: expected '=', saw '\xC3\xA9'"}},
      {"an unclosed text",
       "[model]\npreset = \"nano\n",
       {},
       {"run.toml:2:15: Error while parsing string: unescaped control characters other than TAB "
        "(U+0009) are explicitly prohibited"}},
      {"a repeated key",
       "[train]\nsteps = 1\nsteps = 2\n",
       {},
       {"run.toml:3:9: Error while parsing key-value pair: cannot redefine existing integer "
        "'steps'"}},
      {"a repeated table",
       "[train]\nsteps = 1\n[train]\nseed = 2\n",
       {},
       {"run.toml:3:1: Error while parsing table header: cannot redefine existing table 'train'"}},
      {"no value",
       "[train]\nsteps =\n",
       {},
       {"run.toml:2:8: Error while parsing key-value pair: expected value, saw '\\n'; text needs "
        "quotes, as in preset = \"char\""}},
      {"an unclosed table",
       "[train\nsteps = 1\n",
       {},
       {"run.toml:1:7: Error while parsing table header: expected ']', saw '\\n'"}},
      {"a number beyond 64 bits",
       "[train]\nsteps = 99999999999999999999\n",
       {},
       {"run.toml:2:29: Error while parsing decimal integer: '99999999999999999999' is not "
        "representable in 64 bits"}},
  };
}

BadConfigs wrong_types() {
  return {
      {"text for an integer",
       "[train]\nsteps = \"ten\"\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not \"ten\""}},
      {"a fraction for an integer",
       "[train]\nsteps = 10.5\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not 10.5"}},
      {"a truth for an integer",
       "[train]\nsteps = true\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not true"}},
      {"a list for an integer",
       "[train]\nsteps = [1, 2]\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not a list"}},
      {"a table for an integer",
       "[train]\nsteps = {count = 1}\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not a table"}},
      {"a date for an integer",
       "[train]\nsteps = 1979-05-27\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not 1979-05-27"}},
      {"text for a number",
       "[train]\nlearning_rate = \"1e-3\"\n",
       {},
       {"run.toml:2:1: train.learning_rate must be a number, 1e-12 to 10, not \"1e-3\""}},
      {"text for a truth",
       "[model]\ntied = \"yes\"\n",
       {},
       {"run.toml:2:1: model.tied must be true or false, not \"yes\""}},
      {"an integer for a truth",
       "[model]\ntied = 1\n",
       {},
       {"run.toml:2:1: model.tied must be true or false, not 1"}},
      {"an integer for a text",
       "[data]\ntext = 3\n",
       {},
       {"run.toml:2:1: data.text must be text, not 3"}},
      {"an integer for a word",
       "[model]\npreset = 2\n",
       {},
       {"run.toml:2:1: model.preset must be one of nano, char, baby, gpt2, resnet-tiny, resnet18, "
        "resnet50, evoformer-tiny, evoformer-demo, evoformer-af2, pairformer, pairmixer, module, "
        "not 2"}},
  };
}

BadConfigs wrong_units() {
  return {
      {"a number for a list",
       "[train]\nsplit = 0.5\n",
       {},
       {"run.toml:2:1: train.split must be a list of numbers like [0.25, 0.75], not 0.5"}},
      {"a text in a list of numbers",
       "[train]\nsplit = [0.5, \"half\"]\n",
       {},
       {"run.toml:2:1: train.split must be a list of numbers like [0.25, 0.75], but one member is "
        "\"half\""}},
      {"auto where there is no auto",
       "[train]\nsteps = \"auto\"\n",
       {},
       {"run.toml:2:1: train.steps must be an integer, at least 1 (steps), not \"auto\""}},
      {"the number behind auto",
       "[train]\nmicro_batch = -1\n",
       {},
       {"run.toml:2:1: train.micro_batch is -1, but must be at least 1 (samples)"}},
      {"an unknown unit of bytes",
       "[comm]\nbucket_bytes = \"25 parsecs\"\n",
       {},
       {"run.toml:2:1: comm.bucket_bytes must be bytes like 4096 or \"64MiB\", not \"25 "
        "parsecs\""}},
      {"a unit of time for bytes",
       "[comm]\nbucket_bytes = \"25s\"\n",
       {},
       {"run.toml:2:1: comm.bucket_bytes must be bytes like 4096 or \"64MiB\", not \"25s\""}},
      {"a fraction of a byte",
       "[comm]\nbucket_bytes = 4096.5\n",
       {},
       {"run.toml:2:1: comm.bucket_bytes must be bytes like 4096 or \"64MiB\", not 4096.5"}},
      {"an unknown unit of time",
       "[comm]\ndeadline = \"5 fortnights\"\n",
       {},
       {"run.toml:2:1: comm.deadline must be seconds like 300 or \"5m\", not \"5 fortnights\""}},
      {"a unit of bytes for time",
       "[comm]\ndeadline = \"5MiB\"\n",
       {},
       {"run.toml:2:1: comm.deadline must be seconds like 300 or \"5m\", not \"5MiB\""}},
  };
}

BadConfigs out_of_range() {
  return {
      {"no steps",
       "[train]\nsteps = 0\n",
       {},
       {"run.toml:2:1: train.steps is 0, but must be at least 1 (steps)"}},
      {"more ranks than a job can have",
       "[run]\nranks = 65537\n",
       {},
       {"run.toml:2:1: run.ranks is 65537, but must be at most 65536 (ranks)"}},
      {"no ranks",
       "[run]\nranks = 0\n",
       {},
       {"run.toml:2:1: run.ranks is 0, but must be at least 1 (ranks)"}},
      {"an infinite learning rate",
       "[train]\nlearning_rate = inf\n",
       {},
       {"run.toml:2:1: train.learning_rate is not a finite number"}},
      {"a learning rate that is no number",
       "[train]\nlearning_rate = nan\n",
       {},
       {"run.toml:2:1: train.learning_rate is not a finite number"}},
      {"a learning rate of a million",
       "[train]\nlearning_rate = 1e6\n",
       {},
       {"run.toml:2:1: train.learning_rate is 1000000, but must be at most 10"}},
      {"a dropout of one",
       "[model]\ndropout = 1.0\n",
       {},
       {"run.toml:2:1: model.dropout is 1, but must be at most 0.99"}},
      {"a beta of one",
       "[train]\nbeta2 = 1\n",
       {},
       {"run.toml:2:1: train.beta2 is 1, but must be at most 0.999999"}},
      {"a negative seed",
       "[train]\nseed = -7\n",
       {},
       {"run.toml:2:1: train.seed is -7, but must be at least 0"}},
      {"a validation of everything",
       "[data]\nvalidation_fraction = 1.0\n",
       {},
       {"run.toml:2:1: data.validation_fraction is 1, but must be at most 0.9"}},
  };
}

BadConfigs wrong_words() {
  return {
      {"a vocabulary of one",
       "[model]\nvocabulary = 1\n",
       {},
       {"run.toml:2:1: model.vocabulary is 1, but must be at least 2 (tokens)"}},
      {"a negative share",
       "[train]\nsplit = [1, -1]\n",
       {},
       {"run.toml:2:1: train.split[1] is -1, but must be at least 1e-09"}},
      {"a bucket of nothing",
       "[comm]\nbucket_bytes = 0\n",
       {},
       {"run.toml:2:1: comm.bucket_bytes is 0, but must be at least 4096 (bytes)"}},
      {"a deadline of nothing",
       "[comm]\ndeadline = 0\n",
       {},
       {"run.toml:2:1: comm.deadline is 0, but must be at least 0.001 (seconds)"}},
      {"a batch of 10^18",
       "[train]\nglobal_batch = 1000000000000000000\n",
       {},
       {"run.toml:2:1: train.global_batch is 1e+18, but must be at most 1000000000 (samples)"}},
      {"a misspelt word",
       "[train]\nschedule = \"cosin\"\n",
       {},
       {"run.toml:2:1: train.schedule must be one of cosine, constant, wsd, not \"cosin\"; did you "
        "mean \"cosine\"?"}},
      {"a word near nothing",
       "[train]\nschedule = \"triangular\"\n",
       {},
       {"run.toml:2:1: train.schedule must be one of cosine, constant, wsd, not \"triangular\""}},
      {"an empty word",
       "[compute]\ngemm = \"\"\n",
       {},
       {"run.toml:2:1: compute.gemm must be one of auto, mkl, onednn, not \"\""}},
      {"float32 products in bf16, on a GPU",
       "[compute]\nproducts = \"medium\"\ndtype = \"bf16\"\ndevice = \"cuda\"\n",
       {},
       {"run.toml:2:1: compute.products = medium is a tolerance of float32 products on CPUs, but "
        "compute.dtype = bf16 has none; remove compute.products, or set compute.dtype = "
        "\"float32\"",
        "run.toml:2:1: compute.products = medium is a tolerance of float32 products on CPUs, but "
        "compute.device = cuda multiplies on GPUs; remove compute.products, or set "
        "compute.device = \"cpu\""}},
      {"half precision",
       "[compute]\ndtype = \"fp16\"\n",
       {},
       {"run.toml:2:1: compute.dtype = \"fp16\" is rejected: its gradients need a scaled loss, "
        "which hanji train does not do (LossScaler is for programs of your own); use bf16 or "
        "float32"}},
      {"another spelling of bf16",
       "[compute]\ndtype = \"bfloat16\"\n",
       {},
       {"run.toml:2:1: compute.dtype = \"bfloat16\" is rejected: it is spelt bf16 here"}},
      {"an engine of GPUs on a CPU",
       "[comm]\nengine = \"nccl\"\n",
       {},
       {"run.toml:2:1: comm.engine = nccl moves tensors of GPUs, but compute.device = cpu computes "
        "on cores; set compute.device = \"cuda\", or comm.engine = \"auto\""}},
  };
}

BadConfigs more_ranks_than_parts() {
  return {
      {"tokens cut among more ranks than there are, with another mistake",
       "[model]\nblock = 1\n[mesh]\ncp = 2\n[train]\nbeta1 = 3.0\n",
       {},
       {"run.toml:4:1: mesh.cp is 2, but a rank has whole tokens and model.block is 1; set mesh.cp "
        "= 1",
        "run.toml:6:1: train.beta1 is 3, but must be at most 0.999999"}},
      {"weights dropped in a ring for want of heads",
       "[model]\nheads = 2\ndropout = 0.2\n[mesh]\ncp = 3\n",
       {{"parallel.context=ring", "--set"}},
       {"run.toml:3:1: mesh.cp = 3 merges parts of a softmax in a ring, which drops no weights, "
        "but model.dropout is 0.2; set model.dropout = 0, or mesh.cp = 2 with parallel.context = "
        "\"ulysses\""}},
      {"weights dropped in a ring that nobody named",
       "[model]\nheads = 2\ndropout = 0.2\n[mesh]\ncp = 3\n",
       {},
       {"run.toml:3:1: mesh.cp = 3 merges parts of a softmax in a ring, which drops no weights, "
        "but model.dropout is 0.2; set model.dropout = 0, or mesh.cp = 2"}},
      {"more stages than layers",
       "[run]\nranks = 4\n[model]\nlayers = 1\n[mesh]\npp = 4\n",
       {},
       {"run.toml:6:1: mesh.pp is 4, but a rank has whole layers and model.layers is 1, with "
        "embedding and head 3; set mesh.pp = 2"}},
      {"more stages of each rank than layers",
       "[model]\nlayers = 1\n[mesh]\npp = 2\n[pipeline]\nschedule = \"zbv\"\n",
       {},
       {"run.toml:4:1: mesh.pp is 2, but a rank has 2 or more layers and model.layers is 1, with "
        "embedding and head 3; set mesh.pp = 1"}},
  };
}

BadConfigs command_lines() {
  return {
      {"an unknown key on the command line",
       "",
       {{"train.stpes=3", "--set"}},
       {"--set: train.stpes: unknown key; did you mean train.steps?"}},
      {"a table in the place of a key on the command line",
       "",
       {{"data=photos.beton", "--set"},
        {"model=nano", "--set"},
        {"mesh=two", "--set"},
        {"data", "--set"}},
       {"--set: data: is a table, not a key; did you mean data.text, data.tokens, data.files, "
        "data.weights?",
        "--set: model: is a table, not a key; did you mean model.preset?",
        "--set: mesh: is a table, not a key; keys of [mesh]: dp, fsdp, pp, cp, tp, axial",
        "--set: data: has no value; write data=VALUE"}},
      {"no value on the command line",
       "",
       {{"train.steps", "--set"}},
       {"--set: train.steps: has no value; write train.steps=VALUE"}},
      {"an empty value on the command line",
       "",
       {{"train.steps=", "--set"}},
       {"--set: train.steps must be an integer, at least 1 (steps), not \"\""}},
      {"a wrong type on the command line",
       "",
       {{"train.steps=many", "--set"}},
       {"--set: train.steps must be an integer, at least 1 (steps), not \"many\""}},
      {"a flag out of range",
       "",
       {{"run.ranks=99999", "--ranks"}},
       {"--ranks: run.ranks is 99999, but must be at most 65536 (ranks)"}},
      {"a misspelt word on the command line",
       "",
       {{"model.preset=chra", "--set"}},
       {"--set: model.preset must be one of nano, char, baby, gpt2, resnet-tiny, resnet18, "
        "resnet50, evoformer-tiny, evoformer-demo, evoformer-af2, pairformer, pairmixer, module, "
        "not \"chra\"; did you mean "
        "\"char\"?"}},
      {"no key on the command line",
       "",
       {{"=3", "--set"}},
       {"--set: names no key; write KEY=VALUE"}},
      {"a contradiction between file and command line",
       "[run]\nranks = 4\n",
       {{"train.global_batch=2", "--set"}},
       {"--set: train.global_batch 2 gives 2 grains of 1, but run.ranks is 4 and every rank needs "
        "one; set train.global_batch = 4"}},
      {"a broken list on the command line",
       "",
       {{"train.split=[1,2", "--set"}},
       {"--set: train.split must be a list of numbers like [0.25, 0.75], not \"[1,2\""}},
      {"file and command line both wrong",
       "[train]\nsteps = 0\n",
       {{"train.seed=x", "--seed"}},
       {"run.toml:2:1: train.steps is 0, but must be at least 1 (steps)",
        "--seed: train.seed must be an integer, at least 0, not \"x\""}},
  };
}

TEST(BadValues, EachGetsItsMessagesAndNoOther) {
  test_plan::expect_messages({bad_syntax, wrong_types, wrong_units, out_of_range, wrong_words,
                              command_lines, more_ranks_than_parts});
}

}  // namespace
}  // namespace hanji::plan
