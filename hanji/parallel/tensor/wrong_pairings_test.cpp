// Lines that would count a gradient twice, lose it or take a part for a whole do not compile. Each that
// must not stands below one that must, so that a line is not refused for another reason.
#include "hanji/parallel/tensor/attention.h"
#include "hanji/parallel/tensor/dropout.h"
#include "hanji/parallel/tensor/linear.h"
#include "hanji/parallel/tensor/loss.h"
#include "hanji/parallel/tensor/norm.h"
#include "hanji/parallel/tensor/regions.h"

namespace hanji::parallel::tensor {
namespace {

template <class From, class To>
concept Meets = requires(Typed<From> x, Parameter<To> parameter) {
  x + parameter;
};
template <class X>
concept HasColumns = requires(Typed<X> x, Parameter<Sharded<0>> weight) {
  column_linear(x, weight);
};
template <class X, class W>
concept HasRows = requires(Typed<X> x, Parameter<W> weight) {
  row_linear(x, weight);
};
template <class X>
concept Enters = requires(Typed<X> x, Axis axis) {
  enter(x, axis);
};
template <class X>
concept Sums = requires(Typed<X> x, Axis axis) {
  sum(x, axis);
};
template <class X>
concept Gathers = requires(Typed<X> x, Axis axis) {
  gather(x, axis);
};
template <class X>
concept IsNormalised = requires(Typed<X> x, Delta<X> delta, LayerNorm<X> norm) {
  add_layer_norm(x, delta, norm, at::kFloat);
};
template <class A, class B>
concept AddsUp = requires(Typed<A> a, Typed<B> b) {
  a + b;
};

template <class X>
concept Scatters = requires(Typed<X> x, Axis axis) {
  scatter_sum<-2>(x, axis);
};
template <class X>
concept IsCut = requires(Typed<X> x, Axis axis) {
  cut<-2>(x, axis);
};
template <class X>
concept BecomesWhole = requires(Typed<X> x, Axis axis) {
  whole(x, axis);
};
template <class X, class W>
concept Multiplies = requires(Typed<X> x, Parameter<W> weight) {
  linear(x, weight);
};
template <class X, class B>
concept IsActivated = requires(Typed<X> x, Parameter<B> bias) {
  bias_gelu(x, bias);
};
template <class X>
concept Attends = requires(Typed<X> x, Parameter<Sharded<0>> bias, Axis axis) {
  causal_attention(x, bias, {}, axis);
};
template <class X>
concept Drops = requires(Typed<X> x, Axis axis) {
  dropout(x, 0.1, {}, axis);
};
template <class X>
concept HasLoss = requires(Typed<X> x, at::Tensor targets, Axis axis) {
  cross_entropy_sum(x, targets, axis, {});
};
template <class P>
concept ParameterEnters = requires(Parameter<P> parameter, Axis axis) {
  enter(parameter, axis);
};
template <class P>
concept ParameterGathers = requires(Parameter<P> parameter, Axis axis) {
  gather(parameter, axis);
};

static_assert(HasColumns<Broadcast>);
static_assert(!HasColumns<Replicated>, "the gradient of x would lack the other ranks' terms");
static_assert(!HasColumns<Tokens>, "each rank would have columns of its own rows only");
static_assert(!HasColumns<Partial>, "a product of terms is not the term of a product's sum");
static_assert(HasRows<Features, Sharded<1>>);
static_assert(!HasRows<Broadcast, Sharded<1>>, "whole rows do not fit a weight cut by inputs");
static_assert(!HasRows<Features, Sharded<0>>, "a weight cut by outputs");
static_assert(Meets<Replicated, Replicated> && Meets<Features, Sharded<0>>);
static_assert(!Meets<Partial, Replicated>, "the bias would be added on every rank");
static_assert(!Meets<Tokens, Replicated>, "each rank has its tokens' term of the gradient only");
static_assert(!Meets<Replicated, Broadcast>, "the gradient would be summed over equal terms");
static_assert(Enters<Replicated>);
static_assert(!Enters<Broadcast>, "its gradient would be summed twice");
static_assert(!Enters<Features> && !Enters<Partial>);
static_assert(Sums<Partial>);
static_assert(!Sums<Replicated>, "a whole counted once for every rank");
static_assert(!Sums<Features> && !Sums<Broadcast>);
static_assert(Gathers<Tokens> && Gathers<Features>);
static_assert(!Gathers<Replicated> && !Gathers<Partial>);
static_assert(IsNormalised<Replicated> && IsNormalised<Tokens>);
static_assert(!IsNormalised<Features>, "a row is normalised over all its features");
static_assert(AddsUp<Partial, Partial> && AddsUp<Tokens, Tokens>);
static_assert(!AddsUp<Replicated, Partial>, "the whole would be counted once for every rank");
static_assert(!AddsUp<Replicated, Broadcast>, "one gradient is a term, the other is all of it");
static_assert(Scatters<Partial>);
static_assert(!Scatters<Replicated> && !Scatters<Broadcast>, "a whole counted once for every rank");
static_assert(!Scatters<Features>, "terms of another part");
static_assert(IsCut<Replicated>);
static_assert(!IsCut<Broadcast>, "its gradient is a term, and all ranks' parts would be one");
static_assert(!IsCut<Partial> && !IsCut<Tokens>);
static_assert(BecomesWhole<Tokens> && BecomesWhole<Features>);
static_assert(!BecomesWhole<Partial>, "terms one after another are no sum");
static_assert(!BecomesWhole<Replicated> && !BecomesWhole<Broadcast>);
static_assert(Multiplies<Replicated, Replicated> && Multiplies<Tokens, Broadcast>);
static_assert(!Multiplies<Tokens, Replicated>,
              "each rank has its tokens' term of the gradient only");
static_assert(!Multiplies<Replicated, Broadcast>, "the gradient would be summed over equal terms");
static_assert(!Multiplies<Features, Sharded<0>>, "columns of the input meet rows of the weight");
static_assert(!Multiplies<Broadcast, Sharded<0>>, "its output is cut: a column_linear");
static_assert(IsActivated<Features, Sharded<0>> && IsActivated<Replicated, Replicated>);
static_assert(!IsActivated<Features, Replicated>, "a whole bias for a part of the columns");
static_assert(!IsActivated<Partial, Replicated>, "of a term, not of the sum");
static_assert(Attends<Features>);
static_assert(!Attends<Broadcast> && !Attends<Tokens>, "heads of all ranks, or tokens of one");
static_assert(Drops<Replicated> && Drops<Tokens> && Drops<Features>);
static_assert(!Drops<Broadcast> && !Drops<Partial>, "before or after the region, not within");
static_assert(HasLoss<Features>);
static_assert(!HasLoss<Replicated>, "each rank would count every row");
static_assert(!HasLoss<Partial> && !HasLoss<Tokens>);
static_assert(ParameterEnters<Replicated>);
static_assert(!ParameterEnters<Broadcast>, "its gradient would be summed twice");
static_assert(!ParameterEnters<Sharded<0>>, "its gradient would be summed over other parts");
static_assert(ParameterGathers<Sharded<0>> && ParameterGathers<Sharded<1>>);
static_assert(!ParameterGathers<Replicated>, "a whole once for every rank");

}  // namespace
}  // namespace hanji::parallel::tensor
