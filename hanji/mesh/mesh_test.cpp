#include "hanji/mesh/mesh.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "hanji/comm/all_reduce.h"
#include "hanji/test/run_ranks.h"

namespace hanji::mesh {
namespace {

using test::run_ranks;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Mesh, SumsRunAlongOneAxisOnly) {
  run_ranks(6, [](world::World& world) {
    const Mesh mesh = world.mesh({{"dp", 2}, {"tp", 3}});
    const int row = world.rank() / 3;
    const int column = world.rank() % 3;
    EXPECT_THAT(mesh.coordinates(), ElementsAre(row, column));
    EXPECT_EQ(mesh["tp"].rank(), column);
    EXPECT_EQ(mesh["dp"].rank(), row);
    at::Tensor along_row = at::full({1}, world.rank(), at::kLong);
    at::Tensor along_column = along_row.clone();
    comm::all_reduce(along_row, mesh["tp"]).wait();
    comm::all_reduce(along_column, mesh["dp"]).wait();
    EXPECT_EQ(along_row.item<int64_t>(), 9 * row + 3);        // 3 row + (0 + 1 + 2)
    EXPECT_EQ(along_column.item<int64_t>(), 2 * column + 3);  // column + (column + 3)
  });
}

TEST(Mesh, AnAxisOfOneIsAGroupOfThisRank) {
  run_ranks(2, [](world::World& world) {
    const Mesh mesh = world.mesh({{"dp", 2}, {"tp", 1}});
    EXPECT_EQ(mesh["tp"].size(), 1);
    EXPECT_EQ(mesh["dp"].size(), 2);
    EXPECT_EQ(mesh["pp"].size(), 1) << "an axis that was not given";
    EXPECT_EQ(mesh.shape().world_size(), 2);
  });
}

TEST(Mesh, AnUnknownAxisIsNotFoundAmongThoseThereAre) {
  run_ranks(1, [](world::World& world) {
    const Mesh mesh = world.mesh({{"dp", 1}});
    try {
      static_cast<void>(mesh["rows"]);
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kNotFound);
      EXPECT_THAT(error.what(), HasSubstr("no axis 'rows'; it has dp"));
    }
  });
}

TEST(Mesh, DegreesMustMultiplyToTheWorld) {
  run_ranks(2, [](world::World& world) { EXPECT_THROW(world.mesh({{"dp", 3}}), Error); });
}

}  // namespace
}  // namespace hanji::mesh
