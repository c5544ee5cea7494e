#include "hanji/train/initial_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "hanji/base/file.h"
#include "hanji/checkpoint/tensors.h"
#include "hanji/models/evoformer.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::train {
namespace {

using checkpoint::TensorEntry;
using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<layers::Model> small_model(uint64_t seed) {
  return models::make_evoformer({.blocks = 2, .width = 8, .heads = 2, .seed = seed});
}

std::map<std::string, at::Tensor> values_of(const layers::Model& model) {
  std::map<std::string, at::Tensor> values;
  for (const auto& [name, tensor] : checkpoint::parameters_of(model)) {
    values[name] = tensor.detach().clone();
  }
  return values;
}

/// Other values than those that all seeds begin with.
std::shared_ptr<layers::Model> trained_model() {
  auto model = small_model(7);
  at::manual_seed(3);
  for (const at::Tensor& one : model->parameters()) one.detach().normal_();
  return model;
}

std::string replaced(std::string name, const std::string& part, const std::string& by) {
  const size_t place = name.find(part);
  return place == name.npos ? name : name.replace(place, part.size(), by);
}

/// As OpenFold has written them before its version 2, with fused projections, beside what only it has.
std::vector<TensorEntry> as_openfold(const std::map<std::string, at::Tensor>& values) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : values) {
    if (!name.starts_with("evoformer.") || name.find(".linear_b_") != name.npos) continue;
    std::string theirs = replaced(name, ".pair_stack.", ".core.");
    theirs = replaced(theirs, ".msa_transition.", ".core.msa_transition.");
    theirs = replaced(theirs, ".outer_product_mean.", ".core.outer_product_mean.");
    at::Tensor here = tensor;
    if (name.find(".linear_a_") != name.npos) {
      theirs = replaced(theirs, ".linear_a_", ".linear_ab_");
      here = at::cat({tensor, values.at(replaced(name, ".linear_a_", ".linear_b_"))});
    }
    entries.push_back({"module.model." + theirs, here.contiguous()});
  }
  entries.push_back({"model.evoformer.linear.weight", at::ones({3, 16})});
  entries.push_back({"model.input_embedder.linear_tf_m.weight", at::ones({16, 22})});
  entries.push_back({"structure_module.ipa.head_weights", at::ones({12})});
  return entries;
}

class InitialFile : public testing::Test {
 protected:
  plan::ModelConfig write(const std::vector<TensorEntry>& entries) {
    plan::ModelConfig config;
    config.preset = "evoformer-tiny";
    config.init = (folder_.path() / "file.safetensors").string();
    const auto views = checkpoint::views_of(entries).or_throw();
    base::throw_if_error(checkpoint::write_safetensors(config.init, views));
    return config;
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(InitialFile, OfOldKeysAndFusedProjectionsGivesEveryBlockItsValues) {
  const auto trained = values_of(*trained_model());
  const auto model = small_model(1);
  const auto before = values_of(*model);
  base::throw_if_error(load_initial_file(write(as_openfold(trained)), *model));
  for (const auto& [name, found] : values_of(*model)) {
    const auto& expected = name.starts_with("evoformer.") ? trained : before;
    EXPECT_TRUE(at::equal(found, expected.at(name))) << name;
  }
}

TEST_F(InitialFile, OfTheModelsOwnNamesGivesAllValues) {
  const auto trained = trained_model();
  const auto model = small_model(1);
  base::throw_if_error(load_initial_file(write(checkpoint::parameters_of(*trained)), *model));
  const auto expected = values_of(*trained);
  for (const auto& [name, found] : values_of(*model)) {
    EXPECT_TRUE(at::equal(found, expected.at(name))) << name;
  }
}

TEST_F(InitialFile, ThatLacksOrHasMoreOfTheStackIsRefusedWithEveryTensorAndChangesNothing) {
  auto entries = as_openfold(values_of(*trained_model()));
  std::erase_if(entries, [](const TensorEntry& one) {
    return one.name.ends_with("blocks.1.msa_att_row.linear_z.weight");
  });
  for (TensorEntry& one : entries) {
    if (one.name.ends_with("blocks.0.core.tri_mul_in.linear_ab_g.bias")) one.tensor = at::ones({6});
  }
  entries.push_back({"evoformer.blocks.2.msa_transition.layer_norm.bias", at::ones({16})});
  const auto model = small_model(1);
  const auto before = values_of(*model);
  const Status status = load_initial_file(write(entries), *model);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(
      status.message(),
      AllOf(
          HasSubstr("file.safetensors"),
          HasSubstr("'evoformer.blocks.1.msa_att_row.linear_z.weight' is missing"),
          HasSubstr("'evoformer.blocks.0.pair_stack.tri_mul_in.linear_b_g.bias' is float32 [3] in "
                    "the file and float32 [8] here"),
          HasSubstr("'evoformer.blocks.2.msa_transition.layer_norm.bias' is in the file")));
  for (const auto& [name, found] : values_of(*model)) {
    EXPECT_TRUE(at::equal(found, before.at(name))) << name;
  }
}

TEST_F(InitialFile, OfATypeThatIsNotReadIsRefusedOnlyWhereItIsWanted) {
  const auto trained = trained_model();
  const auto config = write(checkpoint::parameters_of(*trained));
  std::string text = base::read_file(config.init).or_throw();
  const auto retype = [&](const std::string& name, const std::string& to) {
    // A name and a type of equal lengths: nothing moves.
    const size_t at = text.find('"' + name + '"');
    const size_t type = text.find("\"F32\"", at);
    text.replace(type, 5, to);
    base::throw_if_error(base::write_file_atomic(config.init, text));
  };
  // Padding of the header makes place for a tensor without bytes.
  const size_t end = text.find("}}") + 1;
  const std::string more = R"(,"spare.scale":{"dtype":"U16","shape":[0],"data_offsets":[0,0]})";
  text.insert(end, more);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  length += more.size();
  std::memcpy(text.data(), &length, sizeof length);
  base::throw_if_error(base::write_file_atomic(config.init, text));
  const auto model = small_model(1);
  base::throw_if_error(load_initial_file(config, *model));
  EXPECT_TRUE(at::equal(values_of(*model).begin()->second, values_of(*trained).begin()->second));
  retype("evoformer.blocks.1.msa_transition.layer_norm.bias", "\"U32\"");
  EXPECT_THAT(load_initial_file(config, *small_model(1)).message(),
              AllOf(HasSubstr("'evoformer.blocks.1.msa_transition.layer_norm.bias' is U32 ["),
                    testing::Not(HasSubstr("spare.scale"))));
}

TEST_F(InitialFile, TwoTensorsThatAreOneParameterAreRefused) {
  auto entries = checkpoint::parameters_of(*trained_model());
  entries.push_back({"evoformer.blocks.0.core.msa_transition.linear_1.bias", at::ones({64})});
  EXPECT_THAT(load_initial_file(write(entries), *small_model(1)).message(),
              HasSubstr("are both 'evoformer.blocks.0.msa_transition.linear_1.bias'"));
}

}  // namespace
}  // namespace hanji::train
