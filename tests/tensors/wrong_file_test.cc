// Files that are not in safetensors format. Likely mistakes are recognized, and the error names the
// remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <tuple>

#include "common/tensors/safetensors_reader.h"
#include "tests/data/temp_dir.h"
#include "tests/tensors/reader_error.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

class WrongFile : public ::testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = (dir_ / "file.safetensors").string();
};

TEST_F(WrongFile, OnlyPlainFilesAreRead) {
  EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": cannot be read: No such file"));
  EXPECT_THAT(ReaderError("/dev/null"), HasSubstr("is a device, expected a safetensors file"));
  EXPECT_THAT(ReaderError("/proc/self/maps"), HasSubstr("is a virtual file of the kernel"));
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReaderError(pipe), HasSubstr("is a pipe"));
}

// A zip archive whose first entry has this name.
std::string ZipOf(const std::string& name) {
  return "PK\3\4" + std::string(22, '\1') + std::string{static_cast<char>(name.size()), 0, 0, 0} +
         name + std::string(100, '\1');
}

TEST_F(WrongFile, LikelyMistakesAreRecognized) {
  using namespace std::string_literals;
  const std::tuple<std::string, const char*, const char*> files[] = {
      {ZipOf("model/data.pkl"), "is a PyTorch file (torch.save)", "torch.load(sys.argv[1]"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e\x80"s,
       "is a PyTorch file (torch.save)", "s.save_file("},
      {ZipOf("conv1.weight.npy"), "is a NumPy archive (.npz)", "dict(numpy.load(sys.argv[1]))"},
      {"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer", "git lfs pull"},
  };
  for (const auto& [bytes, what, advice] : files) {
    WriteBytes(path_, bytes);
    EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": " + what)) << what;
    EXPECT_THAT(ReaderError(path_), HasSubstr("expected a safetensors file")) << what;
    EXPECT_THAT(ReaderError(path_), HasSubstr(advice)) << what;
  }
}

TEST_F(WrongFile, OfADirectoryTheErrorSaysWhereTheWeightsAre) {
  const std::string run = dir_ / "a run";
  std::filesystem::create_directories(run);
  EXPECT_EQ(DescribeWrongFile(run, ""), "is a directory, expected a safetensors file");
  std::filesystem::create_directory(run + "/checkpoints");
  EXPECT_THAT(DescribeWrongFile(run, ""),
              HasSubstr("muster export '" + run + "' --format safetensors OUT"));
  WriteBytes(run + "/model.safetensors", "");
  EXPECT_THAT(DescribeWrongFile(run, ""), HasSubstr("are in " + run + "/model.safetensors"));
}

TEST_F(WrongFile, OtherFilesAreQuoted) {
  using namespace std::string_literals;
  WriteBytes(path_, "\xca\xfe\0\1\2\3\4\5\6\7\x8\x9\xa\xb"s);
  EXPECT_EQ(ReaderError(path_), path_ +
                                    ": is damaged, or not a safetensors file: it begins with ca fe "
                                    "00 01 02 03 04 05 06 07 08 09");
  WriteBytes(path_, "");
  std::filesystem::resize_file(path_, uint64_t{1} << 40);
  EXPECT_THAT(ReaderError(path_), HasSubstr("it begins with 00 00 00 00"));
  WriteBytes(path_, "\1\2\3"s);
  EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": is truncated, or not a safetensors file: "
                                                    "expected 8 bytes and a header, got 3 bytes"));
}

// The command can be copied into a shell.
TEST_F(WrongFile, PathsInCommandsAreQuoted) {
  const std::string odd = dir_ / "it's mine.pt";
  WriteBytes(odd, ZipOf("data.pkl"));
  const std::string quoted = dir_.string() + "/it'\\''s mine.";
  EXPECT_THAT(ReaderError(odd), HasSubstr("'" + quoted + "pt' '" + quoted + "safetensors'"));
}

}  // namespace
}  // namespace muster::testing
