// Files that are no safetensors files: each is named for what it is, with what to do.
#include "common/tensors/foreign_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <tuple>

#include "common/base/error.h"
#include "common/tensors/safetensors_reader.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

std::string ErrorIn(const std::string& path) {
  try {
    const SafetensorsReader reader(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "no error";
}

class ForeignFile : public ::testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = (dir_ / "file.safetensors").string();
};

TEST_F(ForeignFile, WhatIsNoSuchFileIsNamed) {
  EXPECT_THAT(ErrorIn(path_), HasSubstr(path_ + ": cannot be read: No such file"));
  EXPECT_THAT(ErrorIn(dir_.string()), HasSubstr("is a folder"));
  EXPECT_THAT(ErrorIn("/dev/null"), HasSubstr("is a device, expected a safetensors file"));
  EXPECT_THAT(ErrorIn("/proc/self/maps"), HasSubstr("is a file of the kernel's"));
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorIn(pipe), HasSubstr("is a pipe"));
  WriteBytes(path_, "");
  std::filesystem::resize_file(path_, uint64_t{1} << 40);
  EXPECT_THAT(ErrorIn(path_), HasSubstr("is a file that begins with zeros"));
}

// An archive of this first name in it.
std::string ZipOf(const std::string& name) {
  return "PK\3\4" + std::string(22, '\1') + std::string{static_cast<char>(name.size()), 0, 0, 0} +
         name + std::string(100, '\1');
}

// Beginnings, and what is said of each.
TEST_F(ForeignFile, OtherKindsAreNamedWithWhatToDo) {
  using namespace std::string_literals;
  const std::tuple<std::string, const char*, const char*> kinds[] = {
      {"", "is an empty file", ""},
      {ZipOf("model/data.pkl"), "is a PyTorch file (torch.save)", "torch.load(sys.argv[1]"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e\x80"s,
       "is a PyTorch file (torch.save)", "s.save_file("},
      {"\x80\x04\x95\x20\x01"s, "is a pickle of Python's", "save_file"},
      {ZipOf("conv1.weight.npy"), "is an archive of NumPy's (.npz)",
       "dict(numpy.load(sys.argv[1]))"},
      {"\x93NUMPY\x01\x00v"s, "is an array of NumPy's (.npy)", "save_file"},
      {"\x08\x08\x12\x06muster"s, "is an ONNX file", "does not read it"},
      {"\x89HDF\r\n\x1a\n\x02", "is an HDF5 file", "save_file"},
      {"GGUF\x03\x00\x00"s, "is a GGUF file", "save_file"},
      {ZipOf("notes.txt"), "is a zip archive", "Unpack it"},
      {"\x1f\x8b\x08\x00"s, "is a gzip file", "Unpack it"},
      {"MUSTERCK\x01\x00\x00\x00"s, "is the state of a checkpoint", "which is its folder"},
      {"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS", "git lfs pull"},
      {"<!DOCTYPE html><title>404</title>", "is a web page", "The download"},
      {"run { steps: 1 }\n# a config\n", "is a text", ""},
  };
  for (const auto& [bytes, what, advice] : kinds) {
    WriteBytes(path_, bytes);
    EXPECT_THAT(ErrorIn(path_), HasSubstr(path_ + ": " + what)) << what;
    EXPECT_THAT(ErrorIn(path_), HasSubstr("expected a safetensors file")) << what;
    EXPECT_THAT(ErrorIn(path_), HasSubstr(advice)) << what;
  }
}

// The line that makes a safetensors file of it is to be copied into a shell.
TEST_F(ForeignFile, NamesInAdviceAreWordsOfAShell) {
  const std::string odd = dir_ / "it's mine.pt";
  WriteBytes(odd, ZipOf("data.pkl"));
  const std::string quoted = dir_.string() + "/it'\\''s mine.";
  EXPECT_THAT(ErrorIn(odd), HasSubstr("'" + quoted + "pt' '" + quoted + "safetensors'"));
}

}  // namespace
}  // namespace muster::testing
