#pragma once

#include "hanji/parallel/axial/layouts.h"

namespace hanji::parallel::axial {

enum class Edges : bool { kIncoming, kOutgoing };

/// The product of a triangle update, each channel by itself: outgoing p_ij = sum over k of a_ik b_jk,
/// incoming p_ij = sum over k of a_ki b_kj.
///
/// Shape   a, b [B, N, N, C], of which each rank has its rows -> the same.
/// Result  that of one rank; incoming by kGather and kRing adds up in another order.
/// Cost    of p ranks and a pair tensor of U elements, all ranks together, forward and about as much
///         backward: kGather (p - 1) U, and U of memory on every rank; kRing (p - 1) U, and 2 U / p;
///         kChannels 3 (1 - 1 / p) U, and 3 U / p.
/// Errors  throws Error(kUnsupported) for another way than kChannels on an axis in blocks: each channel is
///         one product there, as on one rank, and no other way sums so.
Typed<Rows> triangle_product(const Typed<Rows>& a, const Typed<Rows>& b, Edges edges,
                             const Places& places);

}  // namespace hanji::parallel::axial
