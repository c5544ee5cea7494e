#include "hanji/checkpoint/export.h"

#include <gmock/gmock.h>

#include "hanji/checkpoint/internal/test_state.h"
#include "hanji/test/temporary_folder.h"

namespace hanji::checkpoint {
namespace {

using internal::read_bytes;
using internal::TestState;
using internal::write_bytes;
using testing::HasSubstr;

class ExportTensors : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save_checkpoint({.folder = temporary_.path() / "c"}, state_.state(), {}).ok());
    checkpoint_ = load_checkpoint(temporary_.path() / "c").or_throw();
  }
  std::filesystem::path to() const { return temporary_.path() / "out.safetensors"; }
  Result<size_t> write(const std::vector<std::string>& names) {
    return export_tensors(checkpoint_, names, to());
  }
  test::TemporaryFolder temporary_{internal::folder_in_memory()};
  TestState state_{1};
  Checkpoint checkpoint_;
};

TEST_F(ExportTensors, WritesTheModel) {
  EXPECT_EQ(write({}).or_throw(), state_.model().size());
  const auto file = SafetensorsFile::open(to()).or_throw();
  EXPECT_TRUE(internal::holds(in_one_run(file.tensors()), state_.model()));
}

TEST_F(ExportTensors, WritesTheTensorsThatAreNamed) {
  EXPECT_EQ(write({"steps", "first_moment"}).or_throw(), 2u);
  const auto file = SafetensorsFile::open(to()).or_throw();
  EXPECT_NE(file.find("first_moment"), nullptr);
  EXPECT_EQ(file.tensors().size(), 2u);
}

TEST_F(ExportTensors, OverwritesNothing) {
  write_bytes(to(), "precious");
  EXPECT_EQ(write({}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_bytes(to()), "precious");
}

TEST_F(ExportTensors, NamesTheNearestTensor) {
  const Status status = write({"head.weigth"}).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("did you mean 'head.weight'?"));
  EXPECT_FALSE(std::filesystem::exists(to()));
}

}  // namespace
}  // namespace hanji::checkpoint
