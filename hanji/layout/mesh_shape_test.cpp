#include "hanji/layout/mesh_shape.h"

#include <gmock/gmock.h>

namespace hanji::layout {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MeshShape, LastAxisRunsFastest) {
  const auto mesh = MeshShape::create({{"dp", 2}, {"tp", 3}}, 6);
  ASSERT_TRUE(mesh.ok());
  EXPECT_THAT(mesh->coordinates(4), ElementsAre(1, 1));
  EXPECT_THAT(*mesh->members(4, "tp"), ElementsAre(3, 4, 5));
  EXPECT_THAT(*mesh->members(4, "dp"), ElementsAre(1, 4));
}

TEST(MeshShape, CoordinatesAndRankAreInverse) {
  const auto mesh = MeshShape::create({{"pp", 2}, {"dp", 3}, {"tp", 4}}, 24);
  ASSERT_TRUE(mesh.ok());
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(mesh->rank_of(mesh->coordinates(rank)), rank);
}

TEST(MeshShape, NoAxesIsAWorldOfOne) {
  ASSERT_TRUE(MeshShape::create({}, 1).ok());
  EXPECT_FALSE(MeshShape::create({}, 2).ok());
}

TEST(MeshShape, RefusesWhatIsNoGrid) {
  EXPECT_THAT(MeshShape::create({{"dp", 2}}, 3).status().message(),
              HasSubstr("(dp 2) has 2 ranks but the world has 3"));
  EXPECT_THAT(MeshShape::create({{"dp", 1}, {"dp", 1}}, 1).status().message(),
              HasSubstr("'dp' is given twice"));
  EXPECT_THAT(MeshShape::create({{"dp", 0}}, 0).status().message(), HasSubstr("degree 0"));
  EXPECT_FALSE(MeshShape::create({{"", 1}}, 1).ok());
  EXPECT_FALSE(MeshShape::create({{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}, 0).ok());
}

TEST(MeshShape, AnUnknownAxisIsNamedWithThoseThereAre) {
  const auto mesh = MeshShape::create({{"dp", 2}}, 2);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->members(0, "rows").status().code(), Code::kNotFound);
  EXPECT_THAT(mesh->members(0, "rows").status().message(), HasSubstr("dp 2"));
  EXPECT_EQ(mesh->members(2, "dp").status().code(), Code::kInvalidArgument);
}

TEST(MeshShape, AnAbsentAxisHasDegreeOne) {
  const auto mesh = MeshShape::create({{"fsdp", 2}}, 2);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->degree("fsdp"), 2);
  EXPECT_EQ(mesh->degree("tp"), 1);
  EXPECT_EQ(mesh->coordinate(1, "fsdp"), 1);
  EXPECT_EQ(mesh->coordinate(1, "tp"), 0);
  EXPECT_THAT(*mesh->members(1, "tp"), ElementsAre(1));
  EXPECT_EQ(MeshShape().num_data_coordinates(), 1);
}

TEST(MeshShape, RanksOfADataCoordinateDifferAlongTheOtherAxes) {
  const auto mesh = MeshShape::create({{"pp", 2}, {"dp", 2}, {"fsdp", 3}, {"tp", 2}}, 24);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->num_data_coordinates(), 6);
  constexpr int kRank = 12 + 6 + 2 * 2 + 1;  // pp 1, dp 1, fsdp 2, tp 1
  EXPECT_EQ(mesh->data_coordinate(kRank), 5);
  EXPECT_THAT(mesh->data_peers(kRank), ElementsAre(10, 11, 22, 23));
  EXPECT_THAT(mesh->data_group(kRank), ElementsAre(13, 15, 17, 19, 21, 23));
}

TEST(MeshShape, ADataGroupStandsInTheOrderOfItsCoordinates) {
  const auto mesh = MeshShape::create({{"fsdp", 2}, {"dp", 2}}, 4);
  ASSERT_TRUE(mesh.ok());
  EXPECT_THAT(mesh->data_group(0), ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(mesh->data_coordinate(2), 1);
}

TEST(DescribeCoordinates, NamesTheCoordinatesOnAMeshOfSeveralAxes) {
  const auto described = [](std::vector<Axis> axes, int world_size, int rank) {
    return describe_coordinates(MeshShape::create(std::move(axes), world_size).or_throw(), rank);
  };
  EXPECT_EQ(described({{"dp", 2}, {"tp", 2}}, 4, 2), "dp=1,tp=0");
  EXPECT_EQ(described({{"dp", 2}, {"fsdp", 1}, {"tp", 3}}, 6, 5), "dp=1,tp=2");
  EXPECT_EQ(described({{"dp", 1}, {"tp", 2}}, 2, 1), "");
  EXPECT_EQ(described({}, 1, 0), "");
  const auto mesh = MeshShape::create({{"dp", 2}, {"fsdp", 1}, {"tp", 2}}, 4).or_throw();
  EXPECT_THAT(mesh.used_axes(), ElementsAre("dp", "tp"));
  EXPECT_EQ(name_rank(mesh, 2), "2 (dp=1,tp=0)");
  EXPECT_EQ(name_rank(MeshShape::create({{"dp", 4}}, 4).or_throw(), 2), "2");
}

TEST(NearestDivisors, AreTheNextOnesBelowAndAbove) {
  EXPECT_THAT(nearest_divisors(12, 5), ElementsAre(4, 6));
  EXPECT_THAT(nearest_divisors(12, 4), ElementsAre(4));
  EXPECT_THAT(nearest_divisors(12, 40), ElementsAre(12));
  EXPECT_THAT(nearest_divisors(7, 3), ElementsAre(1, 7));
  EXPECT_THAT(nearest_divisors(7, 3, 6), ElementsAre(1));
  EXPECT_THAT(nearest_divisors(12, 7, 5), ElementsAre(4));
}

}  // namespace
}  // namespace hanji::layout
