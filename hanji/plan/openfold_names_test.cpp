#include "hanji/plan/openfold_names.h"

#include <gmock/gmock.h>

namespace hanji::plan {
namespace {

using testing::ElementsAre;

TEST(OpenFoldNames, OldOnesAndThoseOfDeepFoldAreTheNewOnes) {
  const std::string at = "evoformer.blocks.7.";
  for (const auto& [theirs, ours] : {
           std::pair{"core.msa_transition.linear_1.bias", "msa_transition.linear_1.bias"},
           std::pair{"core.outer_product_mean.linear_out.weight",
                     "outer_product_mean.linear_out.weight"},
           std::pair{"core.tri_att_end.mha.linear_q.weight",
                     "pair_stack.tri_att_end.mha.linear_q.weight"},
           std::pair{"core.pair_transition.layer_norm.weight",
                     "pair_stack.pair_transition.layer_norm.weight"},
           std::pair{"pair_core.tri_mul_in.linear_z.bias", "pair_stack.tri_mul_in.linear_z.bias"},
           std::pair{"msa_att_col.mha.linear_o.weight", "msa_att_col._msa_att.mha.linear_o.weight"},
           std::pair{"msa_att_col.layer_norm_m.bias", "msa_att_col._msa_att.layer_norm_m.bias"},
           std::pair{"msa_att_col._msa_att.mha.linear_o.weight",
                     "msa_att_col._msa_att.mha.linear_o.weight"},
           std::pair{"msa_att_row.mha.linear_o.weight", "msa_att_row.mha.linear_o.weight"},
       }) {
    EXPECT_THAT(renamed_of_openfold(at + theirs), ElementsAre(NamedRows{at + ours}));
    EXPECT_THAT(renamed_of_openfold("module.model." + at + theirs),
                ElementsAre(NamedRows{at + ours}));
  }
}

TEST(OpenFoldNames, OfAFusedProjectionTheFirstHalfIsAAndTheSecondB) {
  const std::string at = "evoformer.blocks.0.pair_stack.tri_mul_out.linear_";
  EXPECT_THAT(renamed_of_openfold(at + "ab_g.bias"),
              ElementsAre(NamedRows{at + "a_g.bias", 0, 2}, NamedRows{at + "b_g.bias", 1, 2}));
}

TEST(OpenFoldNames, OutsideOfTheStackNothingIsRenamed) {
  for (const char* name : {"extra_msa_stack.blocks.0.core.tri_mul_out.linear_z.bias",
                           "template_pair_stack.blocks.0.tri_mul_out.linear_ab_p.weight"}) {
    EXPECT_THAT(renamed_of_openfold(name), ElementsAre(NamedRows{name}));
  }
}

}  // namespace
}  // namespace hanji::plan
