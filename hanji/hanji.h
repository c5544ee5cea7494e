#pragma once

/// All that a training program needs: who am I, the others, one model on all of them, and its file.
#include "hanji/checkpoint/module_file.h"
#include "hanji/comm/all_gather.h"
#include "hanji/comm/all_reduce.h"
#include "hanji/comm/all_to_all.h"
#include "hanji/comm/barrier.h"
#include "hanji/comm/broadcast.h"
#include "hanji/comm/coalesced.h"
#include "hanji/comm/differentiable.h"
#include "hanji/comm/gather.h"
#include "hanji/comm/lease.h"
#include "hanji/comm/message.h"
#include "hanji/comm/reduce.h"
#include "hanji/comm/reduce_scatter.h"
#include "hanji/comm/scatter.h"
#include "hanji/comm/transpose.h"
#include "hanji/data/sampler.h"
#include "hanji/lens/deferred.h"
#include "hanji/mesh/mesh.h"
#include "hanji/parallel/ddp/communication_hook.h"
#include "hanji/parallel/ddp/data_parallel.h"
#include "hanji/parallel/ddp/sync_batch_norm.h"
#include "hanji/parallel/flat_optimizer.h"
#include "hanji/parallel/grad_norm.h"
#include "hanji/parallel/loss_scaler.h"
#include "hanji/parallel/moving_average.h"
#include "hanji/parallel/server/parameter_server.h"
#include "hanji/parallel/stochastic_rounding.h"
#include "hanji/world/connect.h"
#include "hanji/world/spawn.h"

namespace hanji {
using checkpoint::load;
using checkpoint::save;
using data::Remainder;
using data::Sampler;
using lens::deferred;
using lens::Deferred;
using lens::DeferredOptions;
using lens::InitialValues;
using parallel::bf16_hook;
using parallel::clip_grad_norm;
using parallel::CommunicationHook;
using parallel::data_parallel;
using parallel::DataParallelOptions;
using parallel::fp16_hook;
using parallel::LossScaler;
using parallel::MovingAverage;
using parallel::parameter_server;
using parallel::ParameterServer;
using parallel::ParameterServerOptions;
using parallel::power_sgd_hook;
using parallel::Replicas;
using parallel::SyncBatchNorm;
using parallel::top_k_hook;
}  // namespace hanji
