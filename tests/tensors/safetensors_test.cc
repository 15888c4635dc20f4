// Safetensors files: written data is read back, and errors name the cause.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "common/tensors/safetensors_reader.h"
#include "common/tensors/safetensors_writer.h"
#include "tests/data/temp_dir.h"
#include "tests/tensors/reader_error.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with this header and this many bytes of data.
std::string FileOf(const std::string& text, size_t data_bytes) {
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + text + std::string(data_bytes, '\0');
}

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class SafetensorsTest : public ::testing::Test {
 protected:
  const TempDir dir_;
  const std::string path_ = (dir_ / "file.safetensors").string();
};

TEST_F(SafetensorsTest, WhatIsWrittenIsRead) {
  const std::vector<float> weights = {1,     -2.5, 3, 0, std::numeric_limits<float>::infinity(),
                                      1e-40f};
  const std::vector<float> bias = {7};
  const std::vector<int64_t> count = {1'000'000'000'000};
  {
    SafetensorsWriter writer(
        path_, LayOutSafetensors({{.name = "conv.weight", .shape = {2, 3, 1}},
                                  {.name = "conv.bias", .shape = {1}},
                                  {.name = "bn.count", .type = TensorType::kI64, .shape = {}}},
                                 {{"step", "100"}, {"names", "a \"b\"\n\xc3\xa4"}}));
    // Large elements come first, for alignment.
    EXPECT_EQ(writer.header().tensors[0].name, "bn.count");
    writer.Write(Bytes(count));
    writer.Write(Bytes(weights));
    writer.Write(Bytes(bias));
    writer.Commit();
  }
  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.header().metadata.at("step"), "100");
  EXPECT_EQ(reader.header().metadata.at("names"), "a \"b\"\n\xc3\xa4");
  EXPECT_EQ(reader.header().data_begin % 8, 0u);
  ASSERT_EQ(reader.header().tensors.size(), 3u);
  const StoredTensor* stored = reader.header().Find("conv.weight");
  ASSERT_NE(stored, nullptr);
  EXPECT_THAT(stored->shape, ElementsAre(2, 3, 1));
  std::vector<float> floats(6);
  reader.ReadFloats(*stored, floats);
  EXPECT_EQ(floats, weights);
  std::vector<int64_t> integers(1);
  reader.ReadIntegers(*reader.header().Find("bn.count"), integers);
  EXPECT_EQ(integers, count);
  EXPECT_EQ(reader.header().Find("conv"), nullptr);
}

TEST_F(SafetensorsTest, TheFirstTensorBeginsWhereItIsAskedTo) {
  for (const size_t alignment : {8, 64, 4096}) {
    const SafetensorsHeader header =
        LayOutSafetensors({{.name = "a", .shape = {3}}}, {}, alignment);
    EXPECT_EQ(header.data_begin % alignment, 0u);
    const std::string bytes = HeaderBytes(header);
    EXPECT_EQ(bytes.size(), header.data_begin);
    WriteBytes(path_, bytes + std::string(12, '\0'));
    EXPECT_EQ(SafetensorsReader(path_).header().data_begin, header.data_begin);
  }
}

// A tensor may be written in pieces, and an empty one in none. The hash is that of the whole
// tensors.
TEST_F(SafetensorsTest, WrittenInPieces) {
  const SafetensorsHeader header = LayOutSafetensors({{.name = "a", .shape = {0, 3}},
                                                      {.name = "b", .shape = {3}},
                                                      {.name = "c", .shape = {0}},
                                                      {.name = "d", .shape = {1}}},
                                                     {});
  const std::vector<float> b = {1, 2, 3}, d = {4};
  const std::string whole = (dir_ / "whole").string();
  {
    SafetensorsWriter writer(whole, header), pieces(path_, header);
    writer.Write(Bytes(b));
    writer.Write(Bytes(d));
    writer.Commit();
    pieces.Write(Bytes(b).first(5));
    pieces.Write({});
    pieces.Write(Bytes(b).subspan(5));
    pieces.Write(Bytes(d));
    pieces.Commit();
  }
  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.header().metadata.at(kContentsHash), ContentsHashOf(reader));
  std::vector<float> read(3);
  reader.ReadFloats(*reader.header().Find("b"), read);
  EXPECT_EQ(read, b);
  EXPECT_EQ(ReadBytes(path_), ReadBytes(whole));
}

TEST_F(SafetensorsTest, NothingIsLeftOfAFileThatWasNotFinished) {
  {
    SafetensorsWriter writer(path_, LayOutSafetensors({{.name = "a", .shape = {1}}}, {}));
    writer.Write(Bytes(std::vector<float>{1}));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

// 1, -2 and a subnormal of FP16, in each type.
TEST_F(SafetensorsTest, OtherTypesAreReadAsFloats) {
  const auto read = [&](const std::string& type, const std::string& data) {
    WriteBytes(path_, FileOf(R"({"a":{"dtype":")" + type + R"(","shape":[2],"data_offsets":[0,)" +
                                 std::to_string(data.size()) + "]}}",
                             0) +
                          data);
    const SafetensorsReader reader(path_);
    std::vector<float> values(2);
    reader.ReadFloats(reader.header().tensors[0], values);
    return values;
  };
  using namespace std::string_literals;
  EXPECT_THAT(read("BF16", "\x80\x3f\x00\xc0"s), ElementsAre(1, -2));
  EXPECT_THAT(read("F16", "\x00\x3c\x01\x00"s), ElementsAre(1, 0x1p-24f));
  const double doubles[] = {0.1, -2};
  EXPECT_THAT(read("F64", std::string(reinterpret_cast<const char*>(doubles), 16)),
              ElementsAre(0.1f, -2));
  EXPECT_THROW(read("I32", std::string(8, '\0')), Error);
}

// The format does not align tensors, and some writers sort them by name.
TEST_F(SafetensorsTest, TensorsMayBeginAtAnyByte) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
      "b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},
      "c":{"dtype":"I64","shape":[],"data_offsets":[9,17]},
      "d":{"dtype":"BF16","shape":[1],"data_offsets":[17,19]}})";
  const float floats[] = {1.5, -2};
  const int64_t number = int64_t{1} << 40;
  WriteBytes(path_, FileOf(header, 1) + std::string(reinterpret_cast<const char*>(floats), 8) +
                        std::string(reinterpret_cast<const char*>(&number), 8) + "\x80\x3f");
  const SafetensorsReader reader(path_);
  std::vector<float> read(2), half(1);
  reader.ReadFloats(*reader.header().Find("b"), read);
  reader.ReadFloats(*reader.header().Find("d"), half);
  std::vector<int64_t> integers(1);
  reader.ReadIntegers(*reader.header().Find("c"), integers);
  EXPECT_THAT(read, ElementsAre(1.5, -2));
  EXPECT_THAT(half, ElementsAre(1));
  EXPECT_THAT(integers, ElementsAre(number));
}

// Tensors larger than memory can be read in parts.
TEST_F(SafetensorsTest, PartsOfATensor) {
  for (const char* const type : {"F32", "F64"}) {
    const uint64_t size = type == std::string("F32") ? 4 : 8, elements = uint64_t{1} << 34;
    const std::string header = FileOf(fmt::format(R"({{"a":{{"dtype":"{}","shape":[{}],)"
                                                  R"("data_offsets":[0,{}]}}}})",
                                                  type, elements, size * elements),
                                      0);
    WriteBytes(path_, header);
    std::filesystem::resize_file(path_, header.size() + size * elements);
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(header.size() + size * (elements - 1)));
    const float four = 0.5F;
    const double eight = 0.5;
    file.write(
        size == 4 ? reinterpret_cast<const char*>(&four) : reinterpret_cast<const char*>(&eight),
        static_cast<std::streamsize>(size));
    file.close();
    const SafetensorsReader reader(path_);
    std::vector<float> values(3, 7.F);
    reader.ReadSomeFloats(reader.header().tensors[0], elements - 3, values);
    EXPECT_THAT(values, ElementsAre(0, 0, 0.5)) << type;
  }
}

// Any truncation is detected.
TEST_F(SafetensorsTest, EveryTruncationIsNoticed) {
  const std::string whole = FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  WriteBytes(path_, whole);
  EXPECT_EQ(ReaderError(path_), "no error");
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteBytes(path_, whole.substr(0, size));
    EXPECT_THAT(ReaderError(path_), HasSubstr(path_ + ": ")) << size;
  }
  WriteBytes(path_, whole + "x");
  EXPECT_THAT(ReaderError(path_), HasSubstr("1 bytes after the last tensor belong to no tensor"));
}

// A reader that looks at all tensors again for each would take minutes.
TEST_F(SafetensorsTest, ManyTensors) {
  constexpr int kTensors = 50'000;
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < kTensors; ++i) {
    tensors.push_back({.name = fmt::format("t{}", i), .type = TensorType::kU8, .shape = {1}});
  }
  {
    SafetensorsWriter writer(path_, LayOutSafetensors(std::move(tensors), {}));
    for (int i = 0; i < kTensors; ++i) writer.Write(Bytes(std::vector<uint8_t>{1}));
    writer.Commit();
  }
  const SafetensorsReader reader(path_);
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = fmt::format("t{}", i);
    ASSERT_EQ(reader.header().Find(name)->name, name);
  }
  EXPECT_EQ(reader.header().metadata.at(kContentsHash), ContentsHashOf(reader));
}

// Invalid headers, with 16 bytes of data, and the error for each.
constexpr std::tuple<const char*, const char*> kBadHeaders[] = {
    {"not json", "is damaged, or not a safetensors file"},
    {"{not json", "its header is not valid JSON at byte 11"},
    {"{\"\xff\":1}", "its header is not valid JSON"},
    {R"({"a":[[[[[[[[1]]]]]]]]})", "nested more than 4 levels deep"},
    {R"({"a":1})", "tensor a: its entry is not an object"},
    {R"({"a":{"shape":[4],"data_offsets":[0,16]}})", "tensor a: has no dtype"},
    {R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})",
     "tensor a: dtype is \"F33\", expected one of BOOL, U8"},
    {R"({"a":{"dtype":3,"shape":[4],"data_offsets":[0,16]}})", "tensor a: dtype is 3"},
    {R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", "tensor a: has no shape"},
    {R"({"a":{"dtype":"F32","shape":4,"data_offsets":[0,16]}})", "tensor a: shape is not a list"},
    {R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})", "shape is -4"},
    {R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})", "shape is 4.0"},
    {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
     "shape [4294967296,4294967296] is too large"},
    {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]}})",
     "is too large"},
    {R"({"a":{"dtype":"F32","shape":[4]}})", "tensor a: has no data_offsets"},
    {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0]}})", "has 1 numbers, expected 2"},
    {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})",
     "ends at byte 0, before its beginning at byte 16"},
    {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
     "tensor a: has 16 bytes, but F32 of shape [3] needs 12"},
    {R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})",
     "tensor a: ends at byte 20, but there are only 16: the file is truncated"},
    {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},
         "b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
     "tensors a and b overlap: one ends at byte 12, the other begins at 8"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
         "b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
     "bytes 4 to 8, before tensor b, belong to no tensor"},
    {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
     "4 bytes after the last tensor belong to no tensor"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
         "a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
     "its header has a twice"},
    {R"({"a":{"dtype":"F32","dtype":"F16","shape":[4],"data_offsets":[0,16]}})",
     "its header has dtype twice"},
    {R"({"__metadata__":[],"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
     "its __metadata__ is not an object"},
    {R"({"__metadata__":{"step":1},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
     "__metadata__ step is not a string"},
};

TEST_F(SafetensorsTest, BadHeadersAreNamed) {
  for (const auto& [text, expected] : kBadHeaders) {
    WriteBytes(path_, FileOf(text, 16));
    EXPECT_THAT(ReaderError(path_), HasSubstr(expected)) << text;
    EXPECT_THAT(ReaderError(path_), HasSubstr(path_)) << text;
  }
}

TEST_F(SafetensorsTest, AHeaderThatIsTooLongIsNotRead) {
  std::string file = FileOf("{}", 0);
  const uint64_t length = 100'000'001;
  std::memcpy(file.data(), &length, 8);
  WriteBytes(path_, file);
  std::filesystem::resize_file(path_, 200'000'000);  // sparse
  EXPECT_THAT(ReaderError(path_),
              HasSubstr("expected a header of at most 100000000 bytes, got 100000001"));
}

// Empty tensors take no space, wherever they are.
TEST_F(SafetensorsTest, NoElements) {
  WriteBytes(path_, FileOf(R"({"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},
      "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
      "c":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                           4));
  EXPECT_EQ(ReaderError(path_), "no error");
  EXPECT_EQ(SafetensorsReader(path_).header().Find("a")->elements(), 0u);
}

// Arbitrary bytes are either refused or read.
TEST_F(SafetensorsTest, FlippedBitsDoNotCrash) {
  const std::string whole = FileOf(R"({"__metadata__":{"step":"1"},
      "a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                   8);
  for (size_t bit = 0; bit < 8 * (whole.size() - 8); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    WriteBytes(path_, flipped);
    try {
      const SafetensorsReader reader(path_);
      for (const StoredTensor& tensor : reader.header().tensors) {
        std::vector<std::byte> bytes(tensor.bytes());
        reader.ReadBytes(tensor, bytes);
      }
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_));
    }
  }
}

}  // namespace
}  // namespace muster::testing
