#include "hanji/lens/storage_index.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

namespace hanji::lens {
namespace {

TEST(StorageIndex, FindsATensorByItsViews) {
  const auto weight = at::ones({3, 4}), bias = at::ones({3});
  const StorageIndex index({weight, at::Tensor(), bias});
  EXPECT_EQ(index.find(weight), 0);
  EXPECT_EQ(index.find(weight.t()), 0);
  EXPECT_EQ(index.find(weight[2]), 0);
  EXPECT_EQ(index.find(bias.view({1, 3})), 2);
  EXPECT_EQ(index.find(weight.clone()), -1);
  EXPECT_EQ(index.find(at::Tensor()), -1);
  EXPECT_TRUE(index[2].is_same(bias));
}

TEST(StorageIndex, PiecesOfOneFlatBufferAreTold) {
  const auto flat = at::zeros({64 + 64 + 10});
  const auto a = flat.narrow(0, 0, 50).view({5, 10}), b = flat.narrow(0, 64, 64);
  const StorageIndex index({b, a, at::ones({0}), a});
  EXPECT_EQ(index.find(a[4]), 1);  // the first of two that are tied
  EXPECT_EQ(index.find(b.slice(0, 63)), 0);
  EXPECT_EQ(index.find(flat.slice(0, 55)), -1) << "between the two";
  EXPECT_EQ(index.find(flat.slice(0, 128)), -1);
}

TEST(StorageIndex, MovedTensorsAreFoundAfterARefresh) {
  auto weight = at::ones({3, 4});
  StorageIndex index({weight});
  auto former = weight.detach();
  weight.set_data(at::zeros({3, 4}));
  EXPECT_EQ(index.find(weight), -1);
  index.refresh();
  EXPECT_EQ(index.find(weight), 0);
  EXPECT_EQ(index.find(former), -1);
}

TEST(StorageIndex, AnAddressThatIsFreeAgainIsNotMistaken) {
  auto weight = at::ones({3});
  const StorageIndex index({weight});
  weight.set_data(at::zeros({3}));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(index.find(at::ones({3})), -1);
}

}  // namespace
}  // namespace hanji::lens
