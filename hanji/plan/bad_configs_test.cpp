#include "hanji/plan/test_bad_config.h"

namespace hanji::plan {
namespace {

using test_plan::BadConfigs;

BadConfigs misspelt_names() {
  return {
      {"the example of five mistakes",
       "[model]\npreset = \"nan0\"\n[train]\nstpes = 10\nglobal_batch = \"many\"\nlearning_rate = "
       "-1\n[trian]\nx = 1\n",
       {},
       {"run.toml:2:1: model.preset must be one of nano, char, baby, gpt2, resnet-tiny, resnet18, "
        "resnet50, evoformer-tiny, evoformer-demo, evoformer-af2, pairformer, pairmixer, module, "
        "not \"nan0\"; did you "
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
        "comm, parallel, mesh, pipeline, offload"}},
  };
}

BadConfigs shards() {
  return {
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
       {"run.toml:6:1: mesh.dp is 2, but parallel.data = zero1 cuts one state among all ranks, "
        "which is mesh.fsdp; set mesh.fsdp = 4 and remove mesh.dp, or set parallel.data = "
        "\"hsdp\""}},
      {"replicas in place of shards, beside another axis",
       "[run]\nranks = 8\n[parallel]\ndata = \"zero3\"\n[mesh]\ndp = 2\ntp = 2\n",
       {},
       {"run.toml:6:1: mesh.dp is 2, but parallel.data = zero3 cuts one state among all ranks, "
        "which is mesh.fsdp; set mesh.fsdp = 4 and remove mesh.dp, or set parallel.data = "
        "\"hsdp\""}},
      {"replicas in place of shards, of ranks that nobody counts",
       "[parallel]\ndata = \"zero2\"\n[mesh]\ndp = 2\ntp = 2\n",
       {},
       {"run.toml:4:1: mesh.dp is 2, but parallel.data = zero2 cuts one state among all ranks, "
        "which is mesh.fsdp; set mesh.fsdp = 2 and remove mesh.dp, or set parallel.data = "
        "\"hsdp\""}},
      {"one degree of two, of ranks that nobody counts",
       "[parallel]\ndata = \"hsdp\"\n[mesh]\ntp = 2\ndp = 2\n",
       {},
       {"run.toml:5:1: mesh.dp is 2, but neither mesh.fsdp nor run.ranks says how many ranks there "
        "are; set run.ranks, or mesh.fsdp"}},
      {"groups of a number of ranks that nobody counts",
       "[parallel]\ndata = \"zero3\"\n[mesh]\nfsdp = 2\n",
       {},
       {"run.toml:4:1: mesh.fsdp is 2, but neither mesh.dp nor run.ranks says how many ranks there "
        "are; set run.ranks"}},
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
      {"groups of replicas",
       "[run]\nranks = 4\n[mesh]\nfsdp = 2\n",
       {},
       {"run.toml:4:1: mesh.fsdp is 2, but parallel.data = ddp cuts no state; set parallel.data = "
        "\"hsdp\", or remove mesh.fsdp"}},
      {"servers by sockets",
       "[parallel]\ndata = \"server\"\n[comm]\nengine = \"gloo\"\n",
       {},
       {"run.toml:2:1: parallel.data = server needs ranks that share memory, but comm.engine is "
        "gloo; "
        "set comm.engine = \"shm\", or parallel.data = \"ddp\""}},
      {"another library's word",
       "[parallel]\ndata = \"fsdp\"\n",
       {},
       {"run.toml:2:1: parallel.data = \"fsdp\" is rejected: it is spelt zero3 here, and hsdp "
        "within "
        "groups"}},
  };
}

BadConfigs contexts() {
  return {
      {"a model cut in every way",
       "[mesh]\npp = 2\ncp = 2\ntp = 2\naxial = 1\n",
       {{"mesh.axial=2", "--set"}},
       {"--set: mesh.axial is 2, but model.preset = char is not cut by axial; remove mesh.axial, "
        "or set a preset of evoformer-tiny, evoformer-demo, evoformer-af2, pairformer, pairmixer",
        "--set: mesh.axial is 2 and mesh.tp is 2, but axial stands in the place of tp; remove one "
        "of "
        "them",
        "--set: mesh.pp = 2 has whole layers in its stages, but mesh.axial is 2; remove "
        "mesh.axial"}},
      {"tokens cut among more ranks than heads",
       "[mesh]\ncp = 5\n[parallel]\ncontext = \"ulysses\"\n",
       {},
       {"run.toml:2:1: mesh.cp is 5, but a rank has whole heads and model.heads is 4; set mesh.cp "
        "= "
        "4 or less"}},
      {"tokens in a ring, for stable bits and dropped weights",
       "[model]\ndropout = 0.1\n[train]\nbits = \"stable\"\n[parallel]\ncontext = \"ring\"\n"
       "data = \"server\"\n[mesh]\ncp = 2\n",
       {},
       {"run.toml:2:1: mesh.cp = 2 merges parts of a softmax in a ring, which drops no weights, "
        "but "
        "model.dropout is 0.1; set model.dropout = 0, or parallel.context = \"ulysses\"",
        "run.toml:6:1: mesh.cp = 2 with train.bits = stable has the sums of one process, but "
        "parallel.context = ring merges parts of a softmax in an order that follows the ranks; set "
        "parallel.context = \"ulysses\", or train.bits = \"run\"",
        "run.toml:7:1: mesh.cp = 2 adds up terms of a gradient on several ranks, but parallel.data "
        "= server pushes whole ones; set parallel.data = \"zero1\"",
        "run.toml:9:1: mesh.cp = 2 with train.bits = stable computes tokens in 2 blocks or more, "
        "but train.cuts.tokens is 1; set train.cuts.tokens = 2 or more, or train.bits = \"run\""}},
      {"tokens and heads that two axes do not share evenly",
       "[model]\nblock = 63\n[mesh]\ncp = 2\ntp = 3\n",
       {},
       {"run.toml:2:1: mesh.cp = 2 with mesh.tp = 3 gives every rank as many tokens, but "
        "model.block "
        "is 63; set model.block = 64",
        "run.toml:4:1: mesh.cp = 2 with mesh.tp = 3 gives every rank of tp as many heads, but "
        "model.heads is 4; set mesh.tp = 2 or 4"}},
      {"tokens, heads and blocks of them that ranks do not share in stable",
       "[model]\nkv_heads = 2\n[train]\nbits = \"stable\"\ncuts.tokens = 5\ncuts.features = 2\n"
       "[mesh]\ncp = 2\ntp = 2\n[parallel]\nsequence = true\n",
       {},
       {"run.toml:2:1: mesh.cp = 2 with train.bits = stable computes heads of keys and values on "
        "one rank each, but model.kv_heads is 2 on mesh.tp = 2; set mesh.cp = 1, or train.bits = "
        "\"run\"",
        "run.toml:5:6: mesh.cp = 2 with mesh.tp = 2 gives every rank as many tokens, but "
        "train.cuts.tokens is 5; set train.cuts.tokens = 4",
        "run.toml:11:1: mesh.cp = 2 with train.bits = stable adds up gradients over the tokens of "
        "one axis, but parallel.sequence cuts them by mesh.tp too; remove parallel.sequence, or "
        "set train.bits = \"run\""}},
      {"a way to attend for one rank",
       "[parallel]\ncontext = \"ring\"\n",
       {},
       {"run.toml:2:1: parallel.context = ring is how the ranks of mesh.cp attend, which is 1; set "
        "mesh.cp, or remove parallel.context"}},
  };
}

BadConfigs stages_and_tensors() {
  return {
      {"what stages are not trained with",
       "[train]\nbits = \"stable\"\n[mesh]\npp = 2\n[parallel]\ndata = \"server\"\n[pipeline]\n"
       "schedule = \"zbh1\"\nvirtual_stages = 2\ncut = [1.5]\n[comm]\nengine = \"gloo\"\n",
       {},
       {"run.toml:6:1: mesh.pp = 2 sums the gradients of each stage when its last backward ends, "
        "but parallel.data = server pushes those of the whole model at once; set parallel.data = "
        "\"zero1\"",
        "run.toml:6:1: parallel.data = server needs ranks that share memory, but comm.engine is "
        "gloo; "
        "set comm.engine = \"shm\", or parallel.data = \"ddp\"",
        "run.toml:9:1: pipeline.virtual_stages is 2, but pipeline.schedule = zbh1 has a fixed "
        "number "
        "of stages per rank; set pipeline.schedule = \"interleaved\", or remove "
        "pipeline.virtual_stages",
        "run.toml:10:1: pipeline.cut has a number that is no layer; give whole numbers",
        "run.toml:12:1: mesh.pp = 2 needs ranks of a host that share memory, but comm.engine is "
        "gloo; set comm.engine = \"auto\""}},
      {"parameters that are not sharded",
       "[parallel]\ndata = \"zero2\"\nshare_memory = false\nreshard = \"step\"\n",
       {},
       {"run.toml:3:1: parallel.share_memory is false, but parallel.data = zero2 shards no "
        "parameters; set parallel.data = \"zero3\", or remove parallel.share_memory",
        "run.toml:4:1: parallel.reshard is step, but parallel.data = zero2 shards no parameters; "
        "set parallel.data = \"zero3\", or remove parallel.reshard"}},
      {"keys of a pipeline without one",
       "[pipeline]\nschedule = \"gpipe\"\nmicro_batches = 4\n",
       {},
       {"run.toml:2:1: pipeline.schedule is set, but mesh.pp is 1; set mesh.pp, or remove "
        "pipeline.schedule",
        "run.toml:3:1: pipeline.micro_batches is set, but mesh.pp is 1; set mesh.pp, or remove "
        "pipeline.micro_batches"}},
      {"what a cut model is not trained with",
       "[train]\nbits = \"stable\"\n[model]\nheads = 4\n[parallel]\ndata = \"zero2\"\n"
       "sequence = true\n[comm]\nengine = \"gloo\"\n[mesh]\ntp = 6\n",
       {},
       {"run.toml:2:1: train.bits = stable with mesh.tp = 6 computes features in 6 blocks or more, "
        "but train.cuts.features is 1; set train.cuts.features = 6 or more, or train.bits = "
        "\"run\"",
        "run.toml:7:1: parallel.sequence with train.bits = stable and mesh.tp = 6 computes tokens "
        "in "
        "6 blocks or more, but train.cuts.tokens is 1; set train.cuts.tokens = 6 or more, or "
        "train.bits = \"run\"",
        "run.toml:9:1: mesh.tp = 6 needs ranks that share memory, but comm.engine is gloo; set "
        "comm.engine = \"shm\"",
        "run.toml:11:1: mesh.tp is 6, but a rank has whole heads and model.heads is 4; set mesh.tp "
        "= 4 or less"}},
  };
}

BadConfigs blocks() {
  return {
      {"tokens that no rank cuts",
       "[parallel]\nsequence = true\nmoves = \"weights\"\n",
       {},
       {"run.toml:2:1: parallel.sequence cuts the residual stream among the ranks of mesh.tp, "
        "which "
        "is 1; set mesh.tp, or remove parallel.sequence",
        "run.toml:3:1: parallel.moves = weights moves parts of weights between the ranks of "
        "mesh.tp, which is 1; set mesh.tp, or remove parallel.moves"}},
      {"blocks that nothing computes",
       "[train]\nbits = \"run\"\ngrain = 2\n[train.cuts]\nfeatures = 5\ntokens = 2\n[model]\nheads "
       "= 4\n"
       "[parallel]\ndata = \"server\"\nmoves = \"weights\"\n[mesh]\ntp = 2\n",
       {},
       {"run.toml:5:1: train.cuts.features is 5, but a block has whole heads and 16 columns of the "
        "vocabulary; model.heads is 4; set train.cuts.features = 4 or less",
        "run.toml:5:1: train.cuts.features is 5, but train.bits = run computes whole products; set "
        "train.bits = \"stable\", or remove train.cuts.features",
        "run.toml:5:1: train.cuts.features is 5, but parallel.moves = weights sums the weights' "
        "gradients over rows by rank; remove parallel.moves or train.cuts.features",
        "run.toml:6:1: train.cuts.tokens is 2, but train.bits = run computes whole products; set "
        "train.bits = \"stable\", or remove train.cuts.tokens",
        "run.toml:6:1: train.cuts.tokens is 2, but train.grain = 2 computes the tokens of several "
        "samples together; set train.grain = 1, or remove train.cuts.tokens"}},
      {"a convolution cut by features",
       "[model]\npreset = \"resnet18\"\n[mesh]\ntp = 2\n[data]\nimages = \"generated\"\n",
       {},
       {"run.toml:4:1: mesh.tp is 2, but model.preset = resnet18 is not cut by tp; remove "
        "mesh.tp, or set a preset of nano, char, baby, gpt2"}},
      {"pairs cut among ranks without blocks, in a ring, for stable bits and a server",
       "[model]\npreset = \"evoformer-tiny\"\n[data]\nsequences = 4\n[train]\nbits = "
       "\"stable\"\n[parallel]\ndata = \"server\"\ntriangle = \"ring\"\n[mesh]\naxial = 5\n",
       {},
       {"run.toml:6:1: mesh.axial = 5 with train.bits = stable computes rows in 4 blocks or more, "
        "but train.cuts.tokens is 1; set train.cuts.tokens = 4, or train.bits = \"run\"",
        "run.toml:8:1: mesh.axial = 5 adds up terms of all ranks, but parallel.data = server "
        "serves workers; set parallel.data = \"ddp\", \"zero1\", \"zero2\", \"zero3\" or \"hsdp\"",
        "run.toml:9:1: mesh.axial = 5 with train.bits = stable multiplies each channel whole, as "
        "one rank does, but parallel.triangle = ring sums over the rows of each rank by itself; "
        "set parallel.triangle = \"channels\", or train.bits = \"run\"",
        "run.toml:11:1: mesh.axial is 5, but a rank has whole sequences and data.sequences is 4; "
        "set mesh.axial = 4 or less"}},
      {"more ranks than channels of a triangle product",
       "[model]\npreset = \"pairmixer\"\nwidth = 4\n[mesh]\naxial = 5\n",
       {},
       {"run.toml:3:1: mesh.axial = 5 gives every rank a channel or more of a triangle product, "
        "but "
        "model.width is 4; set mesh.axial = 4 or less, or parallel.triangle = \"ring\""}},
      {"blocks of rows that some lack",
       "[model]\npreset = \"evoformer-tiny\"\n[data]\nsequences = 4\n[train]\nbits = "
       "\"stable\"\n[train.cuts]\ntokens = 5\n",
       {},
       {"run.toml:8:1: train.cuts.tokens is 5, but a block has whole sequences and data.sequences "
        "is 4; set train.cuts.tokens = 4 or less"}},
      {"experts",
       "[mesh]\nep = 2\n",
       {},
       {"run.toml:2:1: mesh.ep is rejected: no model here has experts that ranks could share out; "
        "leave it out"}},
  };
}

BadConfigs degrees() {
  return {
      {"heads and ranks that a degree does not fit",
       "[run]\nranks = 8\n[mesh]\ntp = 5\n",
       {},
       {"run.toml:4:1: mesh.tp is 5, but a rank has whole heads and model.heads is 4; set mesh.tp "
        "= "
        "4",
        "run.toml:4:1: mesh.tp: a mesh of (tp 5) does not divide 8 ranks; set mesh.tp = 4"}},
      {"a degree that no ranks serve",
       "[run]\nranks = 8\n[mesh]\ndp = 1\ntp = 7\n",
       {},
       {"run.toml:5:1: mesh.tp is 7, but a rank has whole heads and model.heads is 4; set mesh.tp "
        "= "
        "4 or less",
        "run.toml:5:1: mesh.tp: a mesh of (tp 7) does not have 8 ranks"}},
      {"a degree that the heads forbid is not proposed",
       "[run]\nranks = 16\n[mesh]\ndp = 2\ntp = 4\n",
       {},
       {"run.toml:5:1: mesh.tp: a mesh of (dp 2, tp 4) does not have 16 ranks; set mesh.dp = 4"}},
      {"more data coordinates than samples",
       "[mesh]\ndp = 32\ntp = 2\n",
       {},
       {"run.toml:2:1: mesh.dp: train.global_batch 16 gives 16 grains of 1, but the mesh has 64 "
        "ranks, 32 data coordinates of 2 and every coordinate needs one; set train.global_batch = "
        "32"}},
      {"a mesh beyond all ranks",
       "[parallel]\ndata = \"hsdp\"\n[mesh]\npp = 65536\ndp = 65536\nfsdp = 16\ncp = "
       "65536\ntp = 65536\naxial = 65536\n",
       {},
       {"run.toml:4:1: mesh.pp is 65536, but a rank has whole layers and model.layers is 4, with "
        "embedding and head 6; set mesh.pp = 6 or less",
        "run.toml:7:1: mesh.cp is 65536, but a rank has 2 or more tokens and model.block is 64; "
        "set "
        "mesh.cp = 32 or less",
        "run.toml:8:1: mesh.tp is 65536, but a rank has whole heads and model.heads is 4; set "
        "mesh.tp = 4 or less",
        "run.toml:9:1: mesh.axial is 65536, but model.preset = char is not cut by axial; remove "
        "mesh.axial, or set a preset of evoformer-tiny, evoformer-demo, evoformer-af2, pairformer, "
        "pairmixer",
        "run.toml:9:1: mesh.axial is 65536 and mesh.tp is 65536, but axial stands in the place of "
        "tp; remove one of them",
        "run.toml:9:1: mesh.pp = 65536 has whole layers in its stages, but mesh.axial is 65536; "
        "remove mesh.axial",
        "run.toml:9:1: mesh.axial: a mesh of (pp 65536, dp 65536, fsdp 16, cp 65536, tp 65536, "
        "axial 65536) has more than 65536 ranks; set smaller degrees"}},
  };
}

BadConfigs data_of_other_models() {
  return {
      {"images for a model of tokens",
       "[data]\nimages = \"generated\"\n",
       {},
       {"run.toml:2:1: model.preset = char learns from tokens, but data.images is generated; "
        "remove "
        "data.images"}},
      {"pairs for a model of tokens, with sequences that paths have not",
       "[data]\npairs = \"paths\"\nsequences = 4\n",
       {},
       {"run.toml:2:1: model.preset = char learns from tokens, but data.pairs is paths; remove "
        "data.pairs",
        "run.toml:3:1: data.sequences is set, but data.pairs, which it describes, is paths; remove "
        "data.sequences"}},
      {"an evoformer of an odd width on graphs and a text",
       "[model]\npreset = \"evoformer-tiny\"\nwidth = 7\n[data]\npairs = \"paths\"\ntext = "
       "\"a.txt\"\n",
       {},
       {"run.toml:3:1: model.width is 7, which is not a multiple of model.heads = 2; set "
        "model.width = 8",
        "run.toml:5:1: data.pairs is paths, but model.preset = evoformer-tiny reads sequences; set "
        "data.pairs = \"contacts\"",
        "run.toml:6:1: data.text and data.pairs are both set, but a run has one source; remove one "
        "of them"}},
  };
}

BadConfigs images() {
  return {
      {"sizes of images without images",
       "[data]\nclasses = 3\n",
       {},
       {"run.toml:2:1: data.classes is set, but data.images, which it describes, is none; set "
        "data.images = \"generated\", or remove data.classes"}},
      {"two sources of images, with stages",
       "[model]\npreset = \"resnet18\"\n[data]\nfiles = \"a.beton\"\nimages = \"generated\"\n",
       {},
       {"run.toml:4:1: data.files and data.images are both set, but a run has one source; remove "
        "one of them"}},
      {"a file for a model of tokens, with what describes images",
       "[data]\nfiles = \"a.beton\"\nclasses = 3\nimage_size = 64\ncorrupt = \"skip\"\n",
       {},
       {"run.toml:3:1: data.classes is set, but data.images, which it describes, is none; set "
        "data.images = \"generated\", or remove data.classes",
        "run.toml:4:1: data.image_size is of images, but data.files has tokens for model.preset = "
        "char; remove data.image_size",
        "run.toml:5:1: data.corrupt is of images, but data.files has tokens for model.preset = "
        "char; "
        "remove data.corrupt"}},
      {"steps ahead that nobody reads",
       "[data]\nworkers = 0\nprefetch = 2\n",
       {},
       {"run.toml:3:1: data.prefetch is 2 steps ahead, but data.workers, which read them, are "
        "none; "
        "set data.workers = \"auto\", or remove data.prefetch"}},
      {"stages that are not, without a file",
       "[model]\npreset = \"resnet18\"\n[data]\nstage = \"flip, blur\"\ncorrupt = \"skip\"\n",
       {},
       {"run.toml:4:1: data.stage: the first stage is flip, but must be a crop; \"blur\" is no "
        "stage; stages are random_resized_crop, center_crop, flip, vertical_flip, brightness, "
        "contrast, saturation, hue, grayscale, translate, cutout, normalise, mixup, cutmix",
        "run.toml:5:1: data.corrupt is set, but data.files, which it describes, is empty; set "
        "data.files, or remove data.corrupt"}},
      {"orders that exclude each other, and weights without a file",
       "[data]\norder = \"ffcv\"\nweights = \"balanced\"\npages = 8\n",
       {},
       {"run.toml:3:1: data.weights is set, but data.files, which it describes, is empty; set "
        "data.files, or remove data.weights",
        "run.toml:3:1: data.weights draws samples with replacement, but data.order is ffcv; remove "
        "one of them",
        "run.toml:4:1: data.pages is set, but neither is data.order quasi nor data.cache process, "
        "which have so many pages at a time, but ffcv and os; set one of them, or remove "
        "data.pages"}},
      {"a cache of a file that is not there, between processes",
       "[data]\ncache = \"process\"\npages = 8\n[comm]\nengine = \"gloo\"\n",
       {},
       {"run.toml:2:1: data.cache is set, but data.files, which it describes, is empty; set "
        "data.files, or remove data.cache",
        "run.toml:2:1: data.cache = process is in memory that the ranks of a host share, but "
        "comm.engine is gloo; set data.cache = \"os\", or remove comm.engine"}},
      {"pages of images that are not in a file",
       "[model]\npreset = \"resnet18\"\n[data]\nimages = \"generated\"\norder = \"quasi\"\n"
       "[train]\ngrain = 16\n",
       {},
       {"run.toml:5:1: data.order is quasi, which is for files of pages, but data.images are "
        "generated; set data.order = \"random\""}},
  };
}

BadConfigs texts() {
  return {
      {"a model of images on a text, with sizes and a grain that it has not",
       "[model]\npreset = \"resnet18\"\nheads = 4\n[data]\ntext = \"a.txt\"\n[train]\ngrain = 8\n"
       "[compute]\ndtype = \"bf16\"\n",
       {},
       {"run.toml:3:1: model.heads is set, but model.preset = resnet18 has no such size; remove "
        "model.heads",
        "run.toml:5:1: data.text and data.images are both set, but a run has one source "
        "(data.images = \"generated\" is the default of model.preset = resnet18); remove "
        "data.text, "
        "or set another model.preset",
        "run.toml:7:1: train.grain is 8, but model.preset = resnet18 normalises by batches, which "
        "takes grains of at least 16 samples; set train.grain = 16",
        "run.toml:9:1: compute.dtype is bf16, in which model.preset = resnet18 does not compute; "
        "set "
        "compute.dtype = \"float32\""}},
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
  };
}

BadConfigs sizes_that_do_not_divide() {
  return {
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
        "mesh.tp = 1"}},
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
  };
}

BadConfigs contradictions() {
  return {
      {"shares of other ranks",
       "[run]\nranks = 2\n[train]\nsplit = [1, 1, 1]\n",
       {},
       {"run.toml:4:1: train.split has 3 shares, but run.ranks is 2; set run.ranks = 3"}},
      {"shares of other data coordinates",
       "[run]\nranks = 8\n[mesh]\npp = 2\n[train]\nsplit = [1, 1, 1]\n",
       {},
       {"run.toml:6:1: train.split has 3 shares, but run.ranks is 8, 4 data coordinates of 2; set "
        "run.ranks = 6"}},
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
       {"run.toml:3:1: train.warmup_steps 20 is above train.steps 10; set train.steps = 20 "
        "or more, or train.warmup_steps = \"auto\""}},
      {"oneDNN in float64",
       "[compute]\ndtype = \"float64\"\ngemm = \"onednn\"\n",
       {},
       {"run.toml:3:1: compute.gemm = onednn has no float64, which compute.dtype asks for; set "
        "compute.gemm = \"auto\""}},
      {"two contradictions at once",
       "[train]\nsteps = 10\nwarmup_steps = 20\n[model]\nheads = 3\n",
       {},
       {"run.toml:3:1: train.warmup_steps 20 is above train.steps 10; set train.steps = 20 "
        "or more, or train.warmup_steps = \"auto\"",
        "run.toml:5:1: model.width 128 is not a multiple of model.heads 3; set model.width = 129"}},
      {"a wrong value raises no contradiction besides",
       "[run]\nranks = 4\n[train]\nglobal_batch = \"2\"\n",
       {},
       {"run.toml:4:1: train.global_batch must be an integer, at least 1 (samples), not \"2\""}},
  };
}

TEST(BadConfigs, EachGetsItsMessagesAndNoOther) {
  test_plan::expect_messages({misspelt_names, shards, contexts, stages_and_tensors, blocks, degrees,
                              data_of_other_models, images, texts, sizes_that_do_not_divide,
                              contradictions});
}

}  // namespace
}  // namespace hanji::plan
