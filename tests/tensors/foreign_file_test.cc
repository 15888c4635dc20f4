// Files that are no safetensors files: each is named for what it is, with what to do.
#include "common/tensors/foreign_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <tuple>

#include "tests/data/temp_dir.h"
#include "tests/tensors/reader_error.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

class ForeignFile : public ::testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = (dir_ / "file.safetensors").string();
};

TEST_F(ForeignFile, WhatIsNoSuchFileIsNamed) {
  EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": cannot be read: No such file"));
  EXPECT_THAT(ReaderError(dir_.string()), HasSubstr("is a folder"));
  EXPECT_THAT(ReaderError("/dev/null"), HasSubstr("is a device, expected a safetensors file"));
  EXPECT_THAT(ReaderError("/proc/self/maps"), HasSubstr("is a file of the kernel's"));
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReaderError(pipe), HasSubstr("is a pipe"));
  WriteBytes(path_, "");
  std::filesystem::resize_file(path_, uint64_t{1} << 40);
  EXPECT_THAT(ReaderError(path_), HasSubstr("is a file that begins with zeros"));
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
      {"\xfd\x37zXZ\0\0\4"s, "is an archive (tar, xz, bzip2 or zstd)", "Unpack it"},
      {"a" + std::string(256, '\0') + "ustar\0"s, "is an archive", "Unpack it"},
      {"\xff\xd8\xff\xe0\0\x10JFIF\0"s, "is a picture", ""},
      {"\x89PNG\r\n\x1a\n\0\0\0\r"s, "is a picture", ""},
      {"%PDF-1.7\n%\xe2\xe3", "is a PDF file", ""},
      {"\x7f\x45LF\2\1\1\0\0\0"s, "is a program or a library (ELF)", ""},
      {"\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09\0\0\xc0\x0d\x8b\x4a\xda\x41\x1a\x0d"
       "brain.Event:2"s,
       "is a file of TensorBoard's events", "give the directory of the run"},
      {"MUSTERCK\x01\x00\x00\x00"s, "is the state of a checkpoint", "which is its folder"},
      {"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS", "git lfs pull"},
      {"<!DOCTYPE html><title>404</title>", "is a web page", "The download"},
      {"run { steps: 1 }\n# a config\n", "is a text", ""},
  };
  for (const auto& [bytes, what, advice] : kinds) {
    WriteBytes(path_, bytes);
    EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": " + what)) << what;
    EXPECT_THAT(ReaderError(path_), HasSubstr("expected a safetensors file")) << what;
    EXPECT_THAT(ReaderError(path_), HasSubstr(advice)) << what;
  }
}

// Of a kind that nothing here knows; or a file whose beginning is damaged.
TEST_F(ForeignFile, WhatNobodyKnowsIsShown) {
  using namespace std::string_literals;
  WriteBytes(path_, "\xca\xfe\0\1\2\3\4\5\6\7\x8\x9\xa\xb"s);
  EXPECT_EQ(ReaderError(path_),
            path_ +
                ": is no safetensors file, or its beginning is damaged: expected the length of a "
                "header in 8 bytes and then {, got ca fe 00 01 02 03 04 05 06 07 08 09");
  WriteBytes(path_, "\1\2\3"s);
  EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": is no safetensors file, or truncated: "
                                                    "expected 8 bytes and a header, got 3 bytes"));
}

// The line that makes a safetensors file of it is to be copied into a shell.
TEST_F(ForeignFile, NamesInAdviceAreWordsOfAShell) {
  const std::string odd = dir_ / "it's mine.pt";
  WriteBytes(odd, ZipOf("data.pkl"));
  const std::string quoted = dir_.string() + "/it'\\''s mine.";
  EXPECT_THAT(ReaderError(odd), HasSubstr("'" + quoted + "pt' '" + quoted + "safetensors'"));
}

}  // namespace
}  // namespace muster::testing
