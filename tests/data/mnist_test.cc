// The reader of MNIST's files, and its errors about bad files.
#include "worker/data/mnist.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <random>

#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/test_sets.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::PlanesOf;
using testing::ReadBytes;
using testing::TempDir;
using testing::WriteBytes;

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string Idx(const std::vector<uint32_t>& dimensions, const std::string& elements) {
  std::string bytes = BigEndian(0x0800 + static_cast<uint32_t>(dimensions.size()));
  for (const uint32_t extent : dimensions) bytes += BigEndian(extent);
  return bytes + elements;
}

std::string Noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string Labels(uint32_t count) {
  std::string labels;
  for (uint32_t i = 0; i < count; ++i) labels += static_cast<char>(i * 3 % 10);
  return labels;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A valid set of 7 training and 3 test images of 5x4, which the tests then damage.
class MnistTest : public ::testing::Test {
 protected:
  MnistTest() {
    Write("train-images-idx3-ubyte", TrainImages());
    Write("train-labels-idx1-ubyte", Idx({7}, Labels(7)));
    Write("t10k-images-idx3-ubyte", Idx({3, 5, 4}, Noise(60, 2)));
    Write("t10k-labels-idx1-ubyte", Idx({3}, Labels(3)));
  }
  static std::string TrainImages() { return Idx({7, 5, 4}, Noise(140, 1)); }
  void Write(const std::string& name, const std::string& bytes) { WriteBytes(dir_ / name, bytes); }
  // Replaces the uncompressed file of this name.
  void WriteCompressed(const std::string& name, const std::string& bytes) {
    fs::remove(dir_ / name);
    WriteBytes(dir_ / (name + ".gz"), bytes);
  }
  Datasets Open() { return OpenMnist(dir_.string()); }
  template <typename Matcher>
  void ExpectRefused(const std::string& file, const Matcher& matcher) {
    EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, AllOf(HasSubstr((dir_ / file).string()), matcher));
  }

  TempDir dir_;
};

void ExpectTheGoodSet(const Datasets& sets) {
  ASSERT_EQ(sets.train->size(), 7);
  ASSERT_EQ(sets.test->size(), 3);
  EXPECT_EQ(sets.train->shape(), (Shape{5, 4, 1}));
  EXPECT_EQ(sets.train->classes(), 10);
  const std::string pixels = Noise(140, 1);
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(sets.train->Label(i), i * 3 % 10);
    const auto planes = PlanesOf(*sets.train, i);
    EXPECT_EQ(std::string(planes.begin(), planes.end()),
              pixels.substr(static_cast<size_t>(i) * 20, 20));
  }
  EXPECT_EQ(sets.test->Label(2), 6);
}

TEST_F(MnistTest, ReadsPlainFiles) { ExpectTheGoodSet(Open()); }

TEST_F(MnistTest, ReadsCompressedFilesOfOneMemberOrMore) {
  const uint64_t plain = Open().train->Fingerprint();
  WriteCompressed("train-labels-idx1-ubyte", Gzip(Idx({7}, Labels(7))));
  WriteCompressed("train-images-idx3-ubyte", Gzip(TrainImages().substr(0, 9)) +
                                                 Gzip(TrainImages().substr(9, 80)) +
                                                 Gzip(TrainImages().substr(89)));
  const Datasets sets = Open();
  ExpectTheGoodSet(sets);
  EXPECT_EQ(sets.train->Fingerprint(), plain);
}

TEST_F(MnistTest, TheFingerprintSeesEveryPixelAndLabel) {
  const uint64_t before = Open().train->Fingerprint();
  std::string images = TrainImages();
  images.back() ^= 1;
  Write("train-images-idx3-ubyte", images);
  EXPECT_NE(Open().train->Fingerprint(), before);
  Write("train-images-idx3-ubyte", TrainImages());
  std::string labels = Labels(7);
  labels[3] = static_cast<char>((labels[3] + 1) % 10);
  Write("train-labels-idx1-ubyte", Idx({7}, labels));
  EXPECT_NE(Open().train->Fingerprint(), before);
}

TEST_F(MnistTest, MissingFilesAreNamed) {
  fs::remove(dir_ / "t10k-labels-idx1-ubyte");
  EXPECT_MUSTER_ERROR(Open(), ExitCode::kData,
                      AllOf(HasSubstr(dir_.string()), HasSubstr("t10k-labels-idx1-ubyte.gz")));
}

TEST_F(MnistTest, ForeignHeadersAreNamed) {
  const std::string images = "train-images-idx3-ubyte";
  Write(images, "");
  ExpectRefused(images, HasSubstr("found an empty file"));
  Write(images, std::string("\0\0", 2));
  ExpectRefused(images, HasSubstr("2 bytes"));
  Write(images, Idx({7}, Labels(7)) + Noise(100, 3));  // labels instead of images
  ExpectRefused(images, AllOf(HasSubstr("0x00000803"), HasSubstr("0x00000801")));
  Write(images, TrainImages().substr(0, 15));
  ExpectRefused(images, HasSubstr("in a file of 15 bytes"));
  std::string floats = TrainImages();
  floats[2] = 0x0d;  // 32-bit floats
  Write(images, floats);
  ExpectRefused(images, HasSubstr("0x00000d03"));
}

TEST_F(MnistTest, SizesThatDoNotFitTheHeaderAreNamed) {
  const std::string images = "train-images-idx3-ubyte";
  Write(images, TrainImages().substr(0, 155));
  ExpectRefused(images,
                AllOf(HasSubstr("140 bytes"), HasSubstr("7 x 5 x 4"), HasSubstr("only 139")));
  Write(images, TrainImages() + "x");
  ExpectRefused(images, HasSubstr("found more"));
  Write(images, Idx({7, 0, 4}, ""));
  ExpectRefused(images, HasSubstr("dimension of 0"));
  // The largest 32-bit sizes are refused without allocating. Their product exceeds 64 bits.
  Write(images, Idx({0xffffffff, 0xffffffff, 0xffffffff}, Noise(140, 1)));
  ExpectRefused(images, HasSubstr("4294967295 x 4294967295 x 4294967295"));
  WriteCompressed(images, Gzip(Idx({0x7fffffff, 28, 28}, Noise(140, 1))));
  ExpectRefused(images + ".gz", HasSubstr("2147483647 x 28 x 28"));
}

TEST_F(MnistTest, EveryTruncationOfACompressedFileIsNamed) {
  const std::string whole = Gzip(TrainImages());
  for (size_t size = 2; size < whole.size(); ++size) {
    WriteCompressed("train-images-idx3-ubyte", whole.substr(0, size));
    ExpectRefused("train-images-idx3-ubyte.gz", HasSubstr("truncated"));
  }
}

TEST_F(MnistTest, DamagedCompressedFilesAreNamed) {
  const std::string whole = Gzip(TrainImages());
  const auto with = [&](size_t at, char mask) {
    std::string bytes = whole;
    bytes[at] ^= mask;
    WriteCompressed("train-images-idx3-ubyte", bytes);
  };
  with(whole.size() - 6, 1);  // the CRC-32
  ExpectRefused("train-images-idx3-ubyte.gz", HasSubstr("incorrect data check"));
  with(whole.size() - 2, 1);  // the length
  ExpectRefused("train-images-idx3-ubyte.gz", HasSubstr("incorrect length check"));
  with(2, 1);  // the method
  ExpectRefused("train-images-idx3-ubyte.gz", HasSubstr("damaged gzip data"));
  WriteCompressed("train-images-idx3-ubyte", whole + "more");
  ExpectRefused("train-images-idx3-ubyte.gz", HasSubstr("4 more bytes"));
}

TEST_F(MnistTest, LabelsAreChecked) {
  Write("train-labels-idx1-ubyte", Idx({6}, Labels(6)));
  ExpectRefused("train-labels-idx1-ubyte",
                AllOf(HasSubstr("7 labels"), HasSubstr("train-images"), HasSubstr("found 6")));
  std::string labels = Labels(7);
  labels[4] = 10;
  Write("train-labels-idx1-ubyte", Idx({7}, labels));
  ExpectRefused("train-labels-idx1-ubyte", AllOf(HasSubstr("found 10"), HasSubstr("label 4")));
}

TEST_F(MnistTest, TrainingAndTestImagesHaveOneSize) {
  Write("t10k-images-idx3-ubyte", Idx({3, 4, 5}, Noise(60, 2)));
  EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, AllOf(HasSubstr("5x4x1"), HasSubstr("4x5x1")));
}

TEST_F(MnistTest, TheConfigSaysTheSizeAndTheFilesMustAgree) {
  config::Data data;
  data.set_format(config::Data::MNIST);
  data.set_dir(dir_.string());
  EXPECT_MUSTER_ERROR(OpenDatasets(data, 1), ExitCode::kData,
                      AllOf(HasSubstr("28x28x1"), HasSubstr("5x4x1"), HasSubstr("image_height")));
  data.mutable_mnist()->set_image_height(5);
  data.mutable_mnist()->set_image_width(4);
  ExpectTheGoodSet(OpenDatasets(data, 1));
}

TEST_F(MnistTest, UsualNamesAndFoldersAreFound) {
  for (const char* folder : {"raw", "MNIST/raw"}) {
    SCOPED_TRACE(folder);
    const TempDir other;
    fs::create_directories(other / folder);
    for (const auto& file : fs::directory_iterator(dir_.string())) {
      std::string name = file.path().filename();
      if (name.starts_with("t10k")) name.replace(name.find("-idx"), 1, ".");
      fs::copy(file.path(), other / folder / name);
      fs::create_directory(other / file.path().filename());  // as in Kaggle's archive
    }
    ExpectTheGoodSet(OpenMnist(other.string()));
  }
}

TEST_F(MnistTest, ASetUnderAnothersNameIsNoticed) {
  const auto write = [&](const std::string& labels) {
    Write("train-images-idx3-ubyte", Idx({10, 5, 4}, Noise(200, 1)));
    Write("train-labels-idx1-ubyte", Idx({10}, labels));
  };
  write({5, 0, 4, 1, 9, 2, 1, 3, 1, 4});  // the first of MNIST
  EXPECT_EQ(Open().remark, "");
  config::Data data;
  data.set_format(config::Data::MNIST);
  data.add_class_names("sneaker");
  EXPECT_MUSTER_ERROR(RequireDataDir(data), ExitCode::kUsage, HasSubstr("data get fashion-mnist"));
  data.set_dir(dir_.string());
  data.mutable_mnist()->set_image_height(5);
  data.mutable_mnist()->set_image_width(4);
  EXPECT_MUSTER_ERROR(OpenDatasets(data, 1), ExitCode::kData, HasSubstr("data get fashion-mnist"));
  write({9, 0, 0, 3, 0, 2, 7, 2, 5, 5});  // the first of Fashion-MNIST
  EXPECT_EQ(OpenDatasets(data, 1).remark, "");
  EXPECT_NE(Open().remark, "");
  fs::remove(dir_ / "train-labels-idx1-ubyte");
  WriteBytes(dir_ / "mnist.npz", "");
  EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, HasSubstr("data.format=NPZ"));
}

// The real files, if MUSTER_MNIST names their directory.
TEST(RealMnist, Loads) {
  const char* dir = std::getenv("MUSTER_MNIST");
  if (dir == nullptr) GTEST_SKIP() << "MUSTER_MNIST does not name a directory with MNIST's files";
  const Datasets sets = OpenMnist(dir);
  EXPECT_EQ(sets.train->shape(), (Shape{28, 28, 1}));
  int64_t counts[10] = {};
  for (int64_t i = 0; i < sets.train->size(); ++i) ++counts[sets.train->Label(i)];
  // Each digit is about a tenth of the set.
  for (const int64_t count : counts) {
    EXPECT_NEAR(static_cast<double>(count), sets.train->size() / 10.0, sets.train->size() / 50.0);
  }
}

}  // namespace
}  // namespace muster
