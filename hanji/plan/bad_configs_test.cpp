#include <gmock/gmock.h>

#include "hanji/plan/load_config.h"

namespace hanji::plan {
namespace {

// Over 150 lines: a corpus, one mistake (or one meeting of mistakes) per entry.
struct BadConfig {
  const char* name;
  const char* toml;
  std::vector<Override> overrides;
  std::vector<std::string> expected;  ///< All messages, in order.
};

const std::vector<BadConfig>& corpus() {
  static const std::vector<BadConfig> entries = {
      {"the example of five mistakes",
       "[model]\npreset = \"nan0\"\n[train]\nstpes = 10\nglobal_batch = \"many\"\nlearning_rate = "
       "-1\n[trian]\nx = 1\n",
       {},
       {"run.toml:2:1: model.preset must be one of nano, char, baby, gpt2, resnet-tiny, resnet18, "
        "resnet50, module, not \"nan0\"; did you "
        "mean \"nano\"?",
        "run.toml:4:1: train.stpes: unknown key; did you mean train.steps?",
        "run.toml:5:1: train.global_batch must be an integer, at least 1 (samples), not \"many\"",
        "run.toml:6:1: train.learning_rate is -1, but must be at least 1e-12",
        "run.toml:7:2: trian: unknown table; did you mean [train]?"}},
      {"a misspelt key",
       "[train]\nlearning_rat = 0.1\n",
       {},
       {"run.toml:2:1: train.learning_rat: unknown key; did you mean train.learning_rate?"}},
      {"swapped letters",
       "[checkpoint]\nkepe = 3\n",
       {},
       {"run.toml:2:1: checkpoint.kepe: unknown key; did you mean checkpoint.keep?"}},
      {"a key in the wrong table",
       "[model]\nsteps = 10\n",
       {},
       {"run.toml:2:1: model.steps: unknown key; did you mean train.steps?"}},
      {"a key outside any table",
       "steps = 10\n",
       {},
       {"run.toml:1:1: steps: unknown key; did you mean train.steps?"}},
      {"a misspelt key outside any table",
       "golbal_batch = 10\n",
       {},
       {"run.toml:1:1: golbal_batch: unknown key; did you mean train.global_batch?"}},
      {"a key that is near nothing",
       "[train]\nzzzzzzzz = 10\n",
       {},
       {"run.toml:2:1: train.zzzzzzzz: unknown key; see `hanji train --print-config`"}},
      {"a misspelt table",
       "[comput]\ngemm = \"mkl\"\n",
       {},
       {"run.toml:1:2: comput: unknown table; did you mean [compute]?"}},
      {"a table that is near nothing",
       "[network]\nport = 1\n",
       {},
       {"run.toml:1:2: network: unknown table; tables: run, model, data, train, checkpoint, "
        "compute, "
        "comm, parallel, mesh, offload"}},
      {"a file without a folder, of shards",
       "[run]\nranks = 2\n[parallel]\ndata = \"zero1\"\n[offload]\noptimizer = \"file\"\n",
       {},
       {"run.toml:6:1: offload.optimizer = file, but offload.folder names no folder for it; set "
        "offload.folder to one of a local disk",
        "run.toml:6:1: offload.optimizer = file is for ranks that each have all moments, but with "
        "parallel.data = zero1 a host has them once, in memory that its ranks share; set "
        "offload.optimizer = \"memory\", or parallel.data = \"ddp\""}},
      {"a file for GPUs",
       "[offload]\noptimizer = \"file\"\nfolder = \"d\"\n[compute]\ndevice = \"cuda\"\n",
       {},
       {"run.toml:2:1: offload.optimizer = file updates on CPUs, but compute.device = cuda has "
        "parameters on GPUs; set offload.optimizer = \"memory\", or compute.device = \"cpu\""}},
      {"a folder for nothing",
       "[offload]\nfolder = \"d\"\n",
       {},
       {"run.toml:2:1: offload.folder is set, but offload.optimizer = memory puts nothing there; "
        "set "
        "offload.optimizer = \"file\", or remove offload.folder"}},
      {"shards and replicas",
       "[run]\nranks = 4\n[parallel]\ndata = \"zero1\"\n[mesh]\ndp = 2\n",
       {},
       {"run.toml:6:1: mesh.dp is 2, but parallel.data = zero1 cuts one state among all ranks; set "
        "parallel.data = \"hsdp\", or remove mesh.dp"}},
      {"groups that do not fit",
       "[run]\nranks = 4\n[parallel]\ndata = \"hsdp\"\n[mesh]\nfsdp = 3\n",
       {},
       {"run.toml:6:1: mesh.fsdp: a mesh of (fsdp 3) does not divide 4 ranks; set mesh.fsdp = 2 or "
        "4"}},
      {"groups that have other ranks",
       "[run]\nranks = 8\n[parallel]\ndata = \"hsdp\"\n[mesh]\ndp = 2\nfsdp = 3\n",
       {},
       {"run.toml:7:1: mesh.fsdp: a mesh of (dp 2, fsdp 3) does not have 8 ranks; set mesh.fsdp = "
        "4"}},
      {"other ranks than replicas",
       "[run]\nranks = 5\n[mesh]\ndp = 2\n",
       {},
       {"run.toml:4:1: mesh.dp: a mesh of (dp 2) does not have 5 ranks; set mesh.dp = 5"}},
      {"a model cut in every way",
       "[mesh]\npp = 2\ncp = 2\ntp = 2\naxial = 1\n",
       {{"mesh.axial=2", "--set"}},
       {"run.toml:2:1: mesh.pp is 2, but model.preset = char is not cut by pp; remove mesh.pp",
        "run.toml:3:1: mesh.cp is 2, but model.preset = char is not cut by cp; remove mesh.cp",
        "--set: mesh.axial is 2, but model.preset = char is not cut by axial; remove mesh.axial",
        "--set: mesh.axial is 2 and mesh.tp is 2, but axial stands in the place of tp; remove one "
        "of "
        "them"}},
      {"what a cut model is not trained with",
       "[train]\nbits = \"stable\"\n[model]\nheads = 4\n[parallel]\ndata = \"zero2\"\n"
       "[comm]\nengine = \"gloo\"\n[mesh]\ntp = 6\n",
       {},
       {"run.toml:2:1: train.bits = stable with mesh.tp = 6 computes features in 6 blocks or more, "
        "but train.cuts.features is 1; set train.cuts.features = 6 or more, or train.bits = "
        "\"run\"",
        "run.toml:6:1: parallel.data = zero2 needs ranks that share memory, but comm.engine is "
        "gloo; set comm.engine = \"shm\", or parallel.data = \"ddp\"",
        "run.toml:8:1: mesh.tp = 6 needs ranks that share memory, but comm.engine is gloo; set "
        "comm.engine = \"shm\"",
        "run.toml:10:1: mesh.tp is 6, but a rank has whole heads and model.heads is 4; set mesh.tp "
        "= 4 or less"}},
      {"tokens that no rank cuts",
       "[parallel]\nsequence = true\n",
       {},
       {"run.toml:2:1: parallel.sequence cuts the residual stream among the ranks of mesh.tp, "
        "which "
        "is 1; set mesh.tp, or remove parallel.sequence"}},
      {"blocks that nothing computes",
       "[train]\nbits = \"run\"\n[train.cuts]\nfeatures = 5\ntokens = 2\n[model]\nheads = 4\n"
       "[parallel]\ndata = \"zero2\"\nsequence = true\n[mesh]\ntp = 2\n",
       {},
       {"run.toml:4:1: train.cuts.features is 5, but a block has whole heads and 16 columns of the "
        "vocabulary; model.heads is 4, the vocabulary 256; set train.cuts.features = 4 or less",
        "run.toml:4:1: train.cuts.features is 5, but train.bits = run computes whole products; set "
        "train.bits = \"stable\", or remove train.cuts.features",
        "run.toml:4:1: train.cuts.features is 5, but parallel.data = zero2 sums the norm of whole "
        "parameters; set parallel.data = \"ddp\", or remove train.cuts.features",
        "run.toml:4:1: train.cuts.features is 5, but parallel.sequence sums gradients of rows by "
        "rank; remove parallel.sequence or train.cuts.features",
        "run.toml:5:1: train.cuts.tokens is 2, but no model computes tokens in blocks; remove "
        "train.cuts.tokens"}},
      {"a convolution cut by features",
       "[model]\npreset = \"resnet18\"\n[mesh]\ntp = 2\n[data]\nimages = \"generated\"\n",
       {},
       {"run.toml:4:1: mesh.tp is 2, but model.preset = resnet18 is not cut by tp; remove "
        "mesh.tp"}},
      {"experts",
       "[mesh]\nep = 2\n",
       {},
       {"run.toml:2:1: mesh.ep is refused: no model here has experts that ranks could share out; "
        "leave it out"}},
      {"groups of replicas",
       "[run]\nranks = 4\n[mesh]\nfsdp = 2\n",
       {},
       {"run.toml:4:1: mesh.fsdp is 2, but parallel.data = ddp cuts no state; set parallel.data = "
        "\"hsdp\", or remove mesh.fsdp"}},
      {"shards by sockets",
       "[parallel]\ndata = \"zero2\"\n[comm]\nengine = \"gloo\"\n",
       {},
       {"run.toml:2:1: parallel.data = zero2 needs ranks that share memory, but comm.engine is "
        "gloo; "
        "set comm.engine = \"shm\", or parallel.data = \"ddp\""}},
      {"another library's word",
       "[parallel]\ndata = \"fsdp\"\n",
       {},
       {"run.toml:2:1: parallel.data = \"fsdp\" is refused: it is spelt zero3 here, and hsdp "
        "within "
        "groups"}},
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
        "resnet50, module, not 2"}},
      {"images for a model of tokens",
       "[data]\nimages = \"generated\"\n",
       {},
       {"run.toml:2:1: model.preset = char learns from tokens, but data.images is generated; "
        "remove "
        "data.images"}},
      {"sizes of images without images",
       "[data]\nclasses = 3\n",
       {},
       {"run.toml:2:1: data.classes is set, but data.images, which it describes, is none; set "
        "data.images = \"generated\", or remove data.classes"}},
      {"a model of images on a text, with sizes and a grain that it has not",
       "[model]\npreset = \"resnet18\"\nheads = 4\n[data]\ntext = \"a.txt\"\n[train]\ngrain = 8\n"
       "[compute]\ndtype = \"bf16\"\n",
       {},
       {"run.toml:3:1: model.heads is set, but model.preset = resnet18 has no such size; remove "
        "model.heads",
        "run.toml:5:1: data.text and data.images are both set, but a run has one source; remove "
        "one "
        "of them",
        "run.toml:7:1: train.grain is 8, but model.preset = resnet18 normalises by batches, which "
        "takes grains of at least 16 samples; set train.grain = 16",
        "run.toml:9:1: compute.dtype is bf16, in which model.preset = resnet18 does not compute; "
        "set "
        "compute.dtype = \"float32\""}},
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
      {"half precision",
       "[compute]\ndtype = \"fp16\"\n",
       {},
       {"run.toml:2:1: compute.dtype = \"fp16\" is refused: its gradients need a scaled loss, "
        "which hanji train does not do (LossScaler is for programs of your own); use bf16 or "
        "float32"}},
      {"another spelling of bf16",
       "[compute]\ndtype = \"bfloat16\"\n",
       {},
       {"run.toml:2:1: compute.dtype = \"bfloat16\" is refused: it is spelt bf16 here"}},
      {"an engine of GPUs on a CPU",
       "[comm]\nengine = \"nccl\"\n",
       {},
       {"run.toml:2:1: comm.engine = nccl moves tensors of GPUs, but compute.device = cpu computes "
        "on cores; set compute.device = \"cuda\", or comm.engine = \"auto\""}},
      {"two sources of data",
       "[data]\ntext = \"a.txt\"\ntokens = \"a.bin\"\n",
       {},
       {"run.toml:3:1: data.text and data.tokens are both set, but a run has one source; remove "
        "one of them"}},
      {"a format of nothing",
       "[data]\nformat = \"llmc\"\n",
       {},
       {"run.toml:2:1: data.format is llmc, but data.tokens, which it describes, is empty; set "
        "data.tokens, or remove data.format"}},
      {"a vocabulary for split data",
       "[data]\ntokens = \"a.bin\"\nvocabulary = \"byte\"\n",
       {},
       {"run.toml:3:1: data.vocabulary = byte splits a text, but data.tokens is split already; "
        "remove data.vocabulary"}},
      {"fewer tokens than bytes",
       "[data]\nvocabulary = \"byte\"\n[model]\nvocabulary = 65\n",
       {},
       {"run.toml:4:1: model.vocabulary is 65, but data.vocabulary = byte has 256 tokens; set "
        "model.vocabulary = \"auto\""}},
      {"a width that heads do not divide",
       "[model]\nwidth = 100\nheads = 3\n",
       {},
       {"run.toml:3:1: model.width 100 is not a multiple of model.heads 3; set model.width = 102"}},
      {"heads that those of keys and values do not divide",
       "[model]\nwidth = 96\nheads = 6\nkv_heads = 4\n",
       {},
       {"run.toml:4:1: model.heads 6 is not a multiple of model.kv_heads 4; set model.kv_heads = "
        "3"}},
      {"more ranks than heads of keys and values",
       "[model]\nkv_heads = 1\n[mesh]\ntp = 2\n[run]\nranks = 2\n",
       {},
       {"run.toml:4:1: mesh.tp is 2, but a rank has whole heads and model.kv_heads is 1; set "
        "mesh.tp "
        "= 1 or less"}},
      {"heads that do not divide the preset's width",
       "[model]\npreset = \"baby\"\nheads = 5\n",
       {},
       {"run.toml:3:1: model.width 384 is not a multiple of model.heads 5; set model.width = 385"}},
      {"a batch of broken grains",
       "[train]\nglobal_batch = 10\ngrain = 4\n",
       {},
       {"run.toml:2:1: train.global_batch 10 is not a multiple of train.grain 4; set "
        "train.global_batch = 12"}},
      {"a micro_batch of broken grains",
       "[train]\ngrain = 4\nmicro_batch = 6\n",
       {},
       {"run.toml:3:1: train.micro_batch 6 is not a multiple of train.grain 4; set "
        "train.micro_batch = 8"}},
      {"a micro_batch above the batch",
       "[train]\nglobal_batch = 8\nmicro_batch = 16\n",
       {},
       {"run.toml:3:1: train.micro_batch 16 is above train.global_batch 8; set train.micro_batch = "
        "\"auto\""}},
      {"fewer grains than ranks",
       "[run]\nranks = 4\n[train]\nglobal_batch = 8\ngrain = 4\n",
       {},
       {"run.toml:4:1: train.global_batch 8 gives 2 grains of 4, but run.ranks is 4 and every rank "
        "needs one; set train.global_batch = 16"}},
      {"fewer samples than ranks",
       "[run]\nranks = 8\n[train]\nglobal_batch = 4\n",
       {},
       {"run.toml:4:1: train.global_batch 4 gives 4 grains of 1, but run.ranks is 8 and every rank "
        "needs one; set train.global_batch = 8"}},
      {"shares of other ranks",
       "[run]\nranks = 2\n[train]\nsplit = [1, 1, 1]\n",
       {},
       {"run.toml:4:1: train.split has 3 shares, but run.ranks is 2; set run.ranks = 3"}},
      {"a share of nothing",
       "[train]\nglobal_batch = 4\nsplit = [1000, 1]\n",
       {},
       {"run.toml:3:1: train.split cannot be served: train.split[1] = 1 leaves rank 1 without any "
        "of the 4 grains; raise the weight or train.global_batch"}},
      {"a rate that rises",
       "[train]\nlearning_rate = 1e-4\nmin_learning_rate = 1e-3\n",
       {},
       {"run.toml:3:1: train.min_learning_rate 0.001 is above train.learning_rate 0.0001; set "
        "train.min_learning_rate = 1e-05"}},
      {"a warm-up beyond the end",
       "[train]\nsteps = 10\nwarmup_steps = 20\n",
       {},
       {"run.toml:3:1: train.warmup_steps 20 is above train.steps 10; set train.warmup_steps = "
        "\"auto\""}},
      {"oneDNN in float64",
       "[compute]\ndtype = \"float64\"\ngemm = \"onednn\"\n",
       {},
       {"run.toml:3:1: compute.gemm = onednn has no float64, which compute.dtype asks for; set "
        "compute.gemm = \"auto\""}},
      {"two contradictions at once",
       "[train]\nsteps = 10\nwarmup_steps = 20\n[model]\nheads = 3\n",
       {},
       {"run.toml:3:1: train.warmup_steps 20 is above train.steps 10; set train.warmup_steps = "
        "\"auto\"",
        "run.toml:5:1: model.width 128 is not a multiple of model.heads 3; set model.width = 129"}},
      {"a wrong value raises no contradiction besides",
       "[run]\nranks = 4\n[train]\nglobal_batch = \"2\"\n",
       {},
       {"run.toml:4:1: train.global_batch must be an integer, at least 1 (samples), not \"2\""}},
      {"an unknown key on the command line",
       "",
       {{"train.stpes=3", "--set"}},
       {"--set: train.stpes: unknown key; did you mean train.steps?"}},
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
        "resnet50, module, not \"chra\"; did you mean "
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
  return entries;
}

std::vector<std::string> messages_of(const LoadedConfig& loaded) {
  std::vector<std::string> texts;
  for (const ConfigMistake& mistake : loaded.mistakes) texts.push_back(mistake.to_string());
  return texts;
}

TEST(BadConfigs, EachGetsItsMessagesAndNoOther) {
  EXPECT_GE(corpus().size(), 60u);
  for (const BadConfig& bad : corpus()) {
    const LoadedConfig loaded = parse_config(bad.toml, "run.toml", bad.overrides);
    EXPECT_THAT(messages_of(loaded), testing::ElementsAreArray(bad.expected)) << bad.name;
    EXPECT_EQ(to_status(loaded.mistakes).code(), Code::kInvalidArgument) << bad.name;
  }
}

TEST(BadConfigs, EveryMistakeNamesPlaceAndFitsOneLine) {
  for (const BadConfig& bad : corpus()) {
    for (const ConfigMistake& mistake :
         parse_config(bad.toml, "run.toml", bad.overrides).mistakes) {
      EXPECT_NE(mistake.origin.source, "default") << bad.name;
      EXPECT_EQ(mistake.to_string().find('\n'), std::string::npos) << bad.name;
      EXPECT_LT(mistake.to_string().size(), 260u) << bad.name;
    }
  }
}

}  // namespace
}  // namespace hanji::plan
