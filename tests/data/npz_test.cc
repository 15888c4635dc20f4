// The reader of NumPy arrays, the resulting data sets, and errors about bad files.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/npz_file.h"
#include "tests/data/temp_dir.h"
#include "worker/data/augmentation.h"
#include "worker/data/npz_data.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Npy;
using testing::NpyBytes;
using testing::NpyMembers;
using testing::ReadBytes;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteNpzFile;

// numpy.savez_compressed(file, x=float32 [[1, 2, 3], [4, 5, 6.5]], y=int64 [1, 0]) of NumPy 2.4.
constexpr uint8_t kOfNumpy[] = {
    0x50, 0x4b, 0x03, 0x04, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x2d, 0x8e,
    0x1c, 0xe8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05, 0x00, 0x14, 0x00, 0x78, 0x2e,
    0x6e, 0x70, 0x79, 0x01, 0x00, 0x10, 0x00, 0x98, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x58,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9b, 0xec, 0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50,
    0xc6, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e, 0xa5, 0xa0, 0x6e, 0x93, 0x66, 0xa2,
    0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92, 0x0a,
    0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a,
    0x46, 0x3a, 0x0a, 0xc6, 0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x64, 0x03, 0x2e, 0x06, 0x86, 0x06, 0x7b,
    0x06, 0x06, 0x06, 0x07, 0x20, 0x02, 0xe2, 0x06, 0x20, 0x5e, 0x00, 0xc4, 0x17, 0x1c, 0x00, 0x50,
    0x4b, 0x03, 0x04, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x71, 0xfb, 0x39,
    0xab, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05, 0x00, 0x14, 0x00, 0x79, 0x2e, 0x6e,
    0x70, 0x79, 0x01, 0x00, 0x10, 0x00, 0x90, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x48, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9b, 0xec, 0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50, 0xc6,
    0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e, 0xa5, 0xa0, 0x6e, 0x93, 0x69, 0xa1, 0xae,
    0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92, 0x0a, 0x12,
    0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a, 0x46,
    0x3a, 0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x14, 0x00, 0x2e, 0x46, 0x06, 0x54, 0x00, 0x00, 0x50, 0x4b,
    0x01, 0x02, 0x2d, 0x03, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x2d, 0x8e,
    0x1c, 0xe8, 0x58, 0x00, 0x00, 0x00, 0x98, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x78, 0x2e, 0x6e, 0x70,
    0x79, 0x50, 0x4b, 0x01, 0x02, 0x2d, 0x03, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21,
    0x00, 0x71, 0xfb, 0x39, 0xab, 0x48, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x8f, 0x00, 0x00, 0x00, 0x79,
    0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x05, 0x06, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x02, 0x00,
    0x66, 0x00, 0x00, 0x00, 0x0e, 0x01, 0x00, 0x00, 0x00, 0x00,
};

template <typename T>
std::vector<T> Count(size_t size) {
  std::vector<T> numbers(size);
  std::iota(numbers.begin(), numbers.end(), T{0});
  return numbers;
}

class NpzTest : public ::testing::Test {
 protected:
  NpzTest() { Use(dir_.string()); }

  void Use(const std::string& dir) {
    data_.Clear();
    data_.set_format(config::Data::NPZ);
    data_.set_dir(dir);
  }
  std::string Write(const std::string& name, const NpyMembers& members, bool compressed = false) {
    WriteNpzFile(dir_ / name, members, compressed);
    return dir_ / name;
  }
  // Writes the same arrays for training and for evaluations.
  void WriteBoth(const std::string& x, const std::string& y, bool compressed = false) {
    for (const char* name : {"train.npz", "test.npz"})
      Write(name, {{"x", x}, {"y", y}}, compressed);
  }
  Datasets Open() {
    ResolveFromFiles(data_);
    return OpenDatasets(data_, 1);
  }
  template <typename Matcher>
  void ExpectRefused(const std::string& file, const Matcher& matcher) {
    const config::Data before = data_;
    EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, AllOf(HasSubstr((dir_ / file).string()), matcher));
    data_ = before;
  }
  std::vector<float> Evaluated(const Dataset& set, int64_t sample) {
    const auto loader = set.MakeLoader(data_);
    std::vector<float> image(static_cast<size_t>(loader->shape().elements()));
    const auto scratch = loader->MakeScratch();
    loader->Evaluate(sample, *scratch, image.data());
    return image;
  }

  const TempDir dir_;
  config::Data data_;
};

TEST_F(NpzTest, ReadsWhatNumpyWrites) {
  const std::string bytes(reinterpret_cast<const char*>(kOfNumpy), sizeof kOfNumpy);
  WriteBytes(dir_ / "train.npz", bytes);
  WriteBytes(dir_ / "val.npz", bytes);
  const Datasets sets = Open();
  for (const Dataset* set : {sets.train.get(), sets.validation.get()}) {
    EXPECT_EQ(set->size(), 2);
    EXPECT_EQ(set->shape(), (Shape{1, 1, 3}));
    EXPECT_EQ(set->classes(), 2);
    EXPECT_EQ(set->Label(0), 1);
    EXPECT_EQ(set->Label(1), 0);
    EXPECT_THAT(Evaluated(*set, 1), ElementsAre(4, 5, 6.5F));
  }
  EXPECT_EQ(data_.npz().type(), config::NpzData::FLOAT32);
}

// Python evaluates the header, so programs and old versions may write it in their own way.
TEST_F(NpzTest, HeadersThatNumpyReads) {
  const std::string x = Npy({2, 2}, Count<float>(4)), y = Npy<int64_t>({2}, {0, 1});
  const size_t length = x.find('\n') - 10;
  for (std::string header : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 2L), }",
                             "{\"shape\":(2,2),\"fortran_order\":False,\"descr\":\"=f4\"}",
                             "{ u'shape' : ( 2 , 2 , ) ,\n u'descr' : u'float32' ,"
                             " u'fortran_order' : False }"}) {
    header.resize(length, ' ');
    std::string other = x;
    WriteBoth(other.replace(10, length, header), y);
    EXPECT_THAT(Evaluated(*Open().train, 1), ElementsAre(2, 3)) << header;
  }
  WriteBoth(NpyBytes("'>u1'", {2, 2}, std::string(4, 1)), y);
  Use(dir_.string());
  EXPECT_EQ(Open().train->size(), 2);
  Use(dir_.string());
  for (std::string header : {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2}",
                             "{'descr': '<f4', 'fortran_order': False}",
                             "{'descr': '<f4', 'descr': '<f4', 'shape': (2, 2)}",
                             "{'descr': [('a', '<f4', 'fortran_order': False, 'shape': (2, 2)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)} x",
                             "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 2)}"}) {
    header.resize(length, ' ');
    std::string other = x;
    WriteBoth(other.replace(10, length, header), y);
    ExpectRefused("train.npz", HasSubstr("expected NumPy's header, found"));
  }
}

TEST_F(NpzTest, OtherCompressionsAreNotSupported) {
  WriteBoth(Npy({2, 2}, Count<float>(4)), Npy<int64_t>({2}, {0, 1}));
  std::string bytes = ReadBytes(dir_ / "train.npz");
  bytes[bytes.find("PK\1\2") + 10] = 14;
  WriteBytes(dir_ / "train.npz", bytes);
  ExpectRefused("train.npz", AllOf(HasSubstr("compressed with LZMA, which is not supported"),
                                   Not(HasSubstr("damaged"))));
}

TEST_F(NpzTest, XHasAnyOfItsShapesAndTypes) {
  const std::string y = Npy<int32_t>({2, 1}, {0, 1});
  for (const bool compressed : {false, true}) {
    for (const auto& [extents, shape] : std::vector<std::pair<std::vector<int64_t>, Shape>>{
             {{2, 24}, {1, 1, 24}}, {{2, 6, 4}, {6, 4, 1}}, {{2, 4, 2, 3}, {4, 2, 3}}}) {
      for (const std::string& x : {Npy(extents, Count<uint8_t>(48)), Npy(extents, Count<float>(48)),
                                   Npy(extents, Count<double>(48))}) {
        Use(dir_.string());
        WriteBoth(x, y, compressed);
        const Datasets sets = Open();
        EXPECT_EQ(sets.train->shape(), shape);
        EXPECT_EQ(StoredShape(data_), shape);
        const bool are_bytes = data_.npz().type() == config::NpzData::UINT8;
        const std::vector<float> image = Evaluated(*sets.train, 1);
        for (size_t i = 0; i < image.size(); ++i) {
          const auto value = static_cast<float>(24 + i);
          EXPECT_EQ(image[i], are_bytes ? value * (1 / 255.0F) : value);
        }
      }
    }
  }
}

TEST_F(NpzTest, ClassesAreIntegersOfAnyWidth) {
  const std::string x = Npy({3, 2}, Count<float>(6));
  for (const std::string& y :
       {Npy<uint8_t>({3}, {2, 0, 1}), Npy<int8_t>({3}, {2, 0, 1}), Npy<uint16_t>({3}, {2, 0, 1}),
        Npy<int16_t>({3}, {2, 0, 1}), Npy<uint32_t>({3}, {2, 0, 1}), Npy<int32_t>({3}, {2, 0, 1}),
        Npy<uint64_t>({3}, {2, 0, 1}), Npy<int64_t>({3}, {2, 0, 1})}) {
    Use(dir_.string());
    WriteBoth(x, y);
    const Datasets sets = Open();
    EXPECT_EQ(sets.train->Label(0), 2);
    EXPECT_EQ(sets.train->Label(1), 0);
    EXPECT_EQ(sets.train->classes(), 3);
  }
  Use(dir_.string());
  WriteBoth(x, NpyBytes("'|b1'", {3}, std::string("\1\0\1", 3)));
  EXPECT_EQ(Open().test->Label(2), 1);
  EXPECT_EQ(DataClasses(data_), 2);
  // The config may have settings that do not apply to these files.
  Use(dir_.string());
  data_.mutable_npz()->set_classes(7);
  EXPECT_EQ(Open().train->classes(), 7);
}

TEST_F(NpzTest, FloatsAreValues) {
  const std::string x = Npy({2, 2}, Count<float>(4));
  for (const std::string& y : {Npy<float>({2}, {0.5, -1}), Npy<double>({2, 1}, {0.5, -1})}) {
    Use(dir_.string());
    WriteBoth(x, y);
    const Datasets sets = Open();
    EXPECT_TRUE(HasValues(data_));
    EXPECT_EQ(DataClasses(data_), 0);
    config::Data with_classes = data_;  // settings without effect
    for (const char* name : {"a", "b"}) with_classes.add_class_names(name);
    with_classes.add_class_weights(2);
    with_classes.mutable_preprocess()->set_mixup_alpha(1);
    EXPECT_EQ(DataClasses(with_classes), 0);
    EXPECT_TRUE(NamesOfClasses(with_classes).empty());
    EXPECT_TRUE(ClassWeights(with_classes).empty());
    EXPECT_EQ(MixupAlpha(with_classes), 0);
    EXPECT_EQ(std::bit_cast<float>(sets.train->Label(0)), 0.5F);
    EXPECT_EQ(std::bit_cast<float>(sets.test->Label(1)), -1);
  }
  Write("test.npz", {{"x", x}, {"y", Npy<int64_t>({2}, {0, 1})}});
  ExpectRefused("test.npz", HasSubstr("expected float32 values as in the other files"));
  data_.mutable_npz()->set_classes(2);
  ExpectRefused("train.npz", HasSubstr("y.astype(\"int64\") if they are classes"));
  Use(dir_.string());
  WriteBoth(x, Npy<double>({2}, {1, 1e200}));
  ExpectRefused("train.npz", HasSubstr("array y: expected finite values (as float32), found inf"));
}

TEST_F(NpzTest, TheSetsAreInFilesOrInOneFile) {
  const std::string x = Npy({2, 1}, Count<float>(2)), y = Npy<int64_t>({2}, {0, 1});
  const std::string other = Npy<float>({1, 1}, {7}), one = Npy<int64_t>({1}, {4});
  Write("train.npz", {{"x", x}, {"y", y}});
  Write("val.npz", {{"x", other}, {"y", one}});
  Write("test.npz", {{"x", x}, {"y", y}});
  EXPECT_EQ(Open().validation->Label(0), 4);
  EXPECT_EQ(Open().test->Label(0), 0);
  EXPECT_EQ(DataClasses(data_), 5);
  Use(Write("all.npz", {{"x_train", x}, {"y_train", y}, {"x_test", other}, {"y_test", one}}));
  const Datasets sets = Open();
  EXPECT_EQ(sets.train->size(), 2);
  EXPECT_EQ(sets.test->Label(0), 4);
  Use(Write("plain.npz", {{"x", x}, {"y", y}, {"x_val", other}, {"y_val", one}}));
  EXPECT_EQ(Open().validation->Label(0), 4);
  // Evaluations without a training set.
  Use(Write("part.npz", {{"x", other}, {"y", one}}));
  data_.mutable_npz()->set_classes(5);
  ExpectRefused("part.npz", HasSubstr("expected arrays for evaluation"));
  ResolveFromFiles(data_);
  EXPECT_EQ(OpenEvaluatedSet(data_, 1).test->Label(0), 4);
}

TEST_F(NpzTest, AFractionIsHeldBack) {
  std::vector<int64_t> y(100);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int64_t>(i % 2);
  for (const std::string& x :
       {Npy({100, 1}, Count<float>(100)), Npy({100, 1}, Count<uint8_t>(100))}) {
    Use(Write("all.npz", {{"x", x}, {"y", Npy({100}, y)}}));
    data_.set_validation_fraction(0.2);
    data_.mutable_preprocess()->add_mean(0);  // in the units of x
    const Datasets sets = Open();
    EXPECT_EQ(sets.train->size() + sets.validation->size(), 100);
    EXPECT_EQ(sets.test, nullptr);
    for (const Dataset* set : {sets.train.get(), sets.validation.get()}) {
      for (int64_t i = 0; i < set->size(); ++i) {
        const auto number = static_cast<int64_t>(Evaluated(*set, i)[0]);
        EXPECT_EQ(set->Label(i), number % 2);
      }
    }
    const Datasets alone = OpenEvaluatedSet(data_, 1);
    EXPECT_EQ(alone.validation->Fingerprint(), sets.validation->Fingerprint());
  }
}

TEST_F(NpzTest, Uint8ArePlanesForTheUsualPreprocessing) {
  WriteBoth(Npy({2, 2, 2, 3}, Count<uint8_t>(24)), Npy<int64_t>({2}, {0, 1}));
  const Datasets sets = Open();
  std::vector<uint8_t> buffer;
  EXPECT_THAT(sets.train->Planes(1, buffer),
              ElementsAre(12, 15, 18, 21, 13, 16, 19, 22, 14, 17, 20, 23));
  EXPECT_TRUE(sets.train->stores_planes());
  data_.mutable_preprocess()->set_crop_height(1);
  data_.mutable_preprocess()->set_crop_width(1);
  for (const double mean : {10.0, 11.0, 12.0}) data_.mutable_preprocess()->add_mean(mean);
  for (int i = 0; i < 3; ++i) data_.mutable_preprocess()->add_stddev(0.5);
  const Datasets normalized = Open();
  EXPECT_THAT(Evaluated(*normalized.train, 1), ElementsAre(4, 4, 4));
  data_.mutable_preprocess()->set_standardize(true);
  EXPECT_THAT(Open().remark, HasSubstr("mean and stddev have no effect"));
}

TEST_F(NpzTest, FloatsAreReflectedInThePadding) {
  WriteBoth(Npy({1, 4, 4, 2}, Count<float>(32)), Npy<int64_t>({1}, {1}));
  config::Preprocess& settings = *data_.mutable_preprocess();
  settings.set_crop_height(4);
  settings.set_crop_width(4);
  settings.set_crop_padding(3);
  settings.set_padding(config::Preprocess::REFLECT);
  const Datasets sets = Open();
  const auto loader = sets.train->MakeLoader(data_);
  const auto scratch = loader->MakeScratch();
  for (int64_t epoch = 0; epoch < 16; ++epoch) {
    const Augmentation drawn = DrawAugmentation(settings, {4, 4, 2}, 5, epoch, 0);
    const auto mirror = [](int64_t at) { return at < 0 ? -at : at > 3 ? 6 - at : at; };
    std::array<float, 32> image{};
    loader->Train(0, 5, epoch, *scratch, image.data());
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t row = mirror(drawn.top + i / 4), column = mirror(drawn.left + i % 4);
      const auto first = static_cast<float>(2 * (4 * row + column));
      EXPECT_EQ(image[static_cast<size_t>(2 * i)], first);
      EXPECT_EQ(image[static_cast<size_t>(2 * i + 1)], first + 1);
    }
  }
}

TEST_F(NpzTest, FloatsAreCroppedMirroredAndNormalized) {
  WriteBoth(Npy({1, 4, 4, 2}, Count<float>(32)), Npy<int64_t>({1}, {1}));
  config::Preprocess& settings = *data_.mutable_preprocess();
  settings.set_crop_height(2);
  settings.set_crop_width(2);
  settings.set_crop_padding(1);
  settings.set_flip(true);
  for (const double mean : {1.0, 2.0}) settings.add_mean(mean);
  for (const double stddev : {2.0, 4.0}) settings.add_stddev(stddev);
  const Datasets sets = Open();
  EXPECT_EQ(InputShape(data_), (Shape{2, 2, 2}));
  EXPECT_THAT(Evaluated(*sets.train, 0), ElementsAre(4.5F, 2.25F, 5.5F, 2.75F,  //
                                                     8.5F, 4.25F, 9.5F, 4.75F));
  // The numbers in a crop reveal its position, and whether it is mirrored.
  const auto loader = sets.train->MakeLoader(data_);
  bool padded = false, mirrored = false;
  for (int64_t epoch = 0; epoch < 64; ++epoch) {
    std::array<float, 8> image{};
    const auto scratch = loader->MakeScratch();
    loader->Train(0, 5, epoch, *scratch, image.data());
    for (size_t i = 0; i < image.size(); i += 2) {
      const float first = image[i] * 2 + 1, second = image[i + 1] * 4 + 2;
      padded |= first == 0 && second == 0;
      EXPECT_TRUE((first == 0 && second == 0) || second == first + 1);
    }
    mirrored |= image[0] > image[2] && image[2] * 2 + 1 != 0;
  }
  EXPECT_TRUE(padded && mirrored);
  std::vector<uint8_t> buffer;
  EXPECT_EQ(sets.train->Planes(0, buffer).back(), 255);
  EXPECT_FALSE(sets.train->stores_planes());
}

TEST_F(NpzTest, AnyChangeChangesTheFingerprint) {
  std::vector<float> x = Count<float>(4);
  WriteBoth(Npy({2, 2}, x), Npy<int64_t>({2}, {0, 1}));
  const uint64_t before = Open().train->Fingerprint();
  EXPECT_EQ(Open().train->Fingerprint(), before);
  WriteBoth(Npy({2, 2}, x), Npy<int64_t>({2}, {1, 1}));
  EXPECT_NE(Open().train->Fingerprint(), before);
  x[3] = 5;
  WriteBoth(Npy({2, 2}, x), Npy<int64_t>({2}, {0, 1}));
  EXPECT_NE(Open().train->Fingerprint(), before);
}

TEST_F(NpzTest, SamplesAloneNeedNoLabels) {
  WriteBoth(Npy({2, 2}, Count<float>(4)), Npy<int64_t>({2}, {0, 1}));
  (void)Open();
  const std::string file = Write("new.npz", {{"x", Npy({3, 2}, Count<float>(6))}});
  EXPECT_EQ(OpenNpzSamples(file, data_)->size(), 3);
  EXPECT_MUSTER_ERROR(
      OpenNpzSamples(Write("wide.npz", {{"x", Npy({2, 3}, Count<float>(6))}}), data_),
      ExitCode::kData, AllOf(HasSubstr("1x1x2 float32"), HasSubstr("1x1x3")));
}

TEST_F(NpzTest, WrongArraysAreNamed) {
  const std::string x = Npy({2, 2}, Count<float>(4)), y = Npy<int64_t>({2}, {0, 1});
  const auto expect = [&](const NpyMembers& members, const auto& matcher) {
    Write("train.npz", members);
    ExpectRefused("train.npz", matcher);
  };
  const auto expect_x = [&](const std::string& bytes, const auto& matcher) {
    expect({{"x", bytes}, {"y", y}}, AllOf(HasSubstr("array x: "), matcher));
  };
  const auto expect_y = [&](const std::string& bytes, const auto& matcher) {
    expect({{"x", x}, {"y", bytes}}, AllOf(HasSubstr("array y: "), matcher));
  };
  expect({{"X", x}, {"y", y}}, HasSubstr("expected an array x, found X, y"));
  expect({}, HasSubstr("has no arrays"));
  expect({{"x", x}}, HasSubstr("expected an array y, found x"));
  expect_x(NpyBytes("'|O'", {2, 2}, "12345678"), HasSubstr("an object array"));
  expect_x(NpyBytes("'>f4'", {2, 2}, std::string(16, 1)), HasSubstr("big-endian"));
  expect_x(NpyBytes("'<U3'", {2, 2}, std::string(48, 1)), HasSubstr("text: store numbers"));
  expect_x(NpyBytes("[('a', '<f4'), ('b', '<i4')]", {2}, std::string(16, 1)),
           HasSubstr("a structured type"));
  expect_x(NpyBytes("'<c8'", {2, 2}, std::string(32, 1)), HasSubstr("the type <c8"));
  expect_x(NpyBytes("'<f4'", {2, 2}, std::string(16, 1), "True"),
           HasSubstr("ascontiguousarray(x)"));
  expect_x(NpyBytes("'<f4'", {2, 2}, std::string(15, 1)),
           HasSubstr("expected the bytes of float32 [2, 2], found 15"));
  expect_x(NpyBytes("'<f4'", {1LL << 40, 1LL << 40}, std::string(16, 1)), HasSubstr("found 16"));
  expect_x("no array", HasSubstr("damaged or truncated"));
  expect_x("no array at all", HasSubstr("NumPy's format"));
  std::string header = x;
  header.replace(header.find("shape"), 5, "share");
  expect_x(header, HasSubstr("expected NumPy's header, found"));
  header = x;
  header[6] = 2;  // version 2: four bytes of length
  expect_x(header, HasSubstr("expected a header of at most"));
  expect_x(Npy({4}, Count<float>(4)), HasSubstr("x.reshape(-1, 1)"));
  expect_x(Npy({2, 0}, Count<float>(0)), HasSubstr("at least one sample"));
  expect_x(Npy({2, 1, 1, 1, 2}, Count<float>(4)), HasSubstr("[2, 1, 1, 1, 2]"));
  expect_x(Npy({2, 2}, Count<int64_t>(4)), AllOf(HasSubstr("int64"), HasSubstr("astype")));
  expect_y(Npy<int64_t>({3}, {0, 1, 1}), HasSubstr("each of the 2 samples of x, found int64 [3]"));
  expect_y(Npy<int64_t>({2, 2}, {0, 1, 1, 0}), HasSubstr("y.argmax(axis=1)"));
  expect_y(Npy<int64_t>({2}, {0, -1}),
           AllOf(HasSubstr("found -1 at sample 1"), HasSubstr("unique")));
  expect_y(Npy<int64_t>({2}, {1 << 30, 0}), HasSubstr("found 1073741824 at sample 0"));
  expect_y(NpyBytes("'<f2'", {2}, std::string(4, 0)), HasSubstr("float16 [2]"));
  Write("train.npz", {{"x", x}, {"y", Npy<int64_t>({2}, {0, 0})}});
  EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, HasSubstr("found only class 0"));
}

TEST_F(NpzTest, NumbersThatAreNotFiniteAreNamed) {
  const std::string y = Npy<int64_t>({2}, {0, 1});
  WriteBoth(Npy<float>({2, 2}, {1, 2, 3, std::numeric_limits<float>::quiet_NaN()}), y);
  ExpectRefused("train.npz", HasSubstr("found nan at sample 1, value 1 of 2"));
  WriteBoth(Npy<double>({2, 2}, {1, 1e300, 3, 4}), y);
  ExpectRefused("train.npz", HasSubstr("found inf at sample 0, value 1 of 2"));
}

TEST_F(NpzTest, AllFilesAgree) {
  const std::string y = Npy<int64_t>({2}, {0, 1});
  Write("train.npz", {{"x", Npy({2, 2}, Count<float>(4))}, {"y", y}});
  Write("test.npz", {{"x", Npy({2, 3}, Count<float>(6))}, {"y", y}});
  ExpectRefused("test.npz", AllOf(HasSubstr("1x1x2 float32"), HasSubstr("1x1x3 float32")));
  Write("test.npz", {{"x", Npy({2, 2}, Count<uint8_t>(4))}, {"y", y}});
  ExpectRefused("test.npz", HasSubstr("found 1x1x2 uint8"));
  Write("test.npz", {{"x", Npy({2, 2}, Count<float>(4))}, {"y", Npy<int64_t>({2}, {0, 3})}});
  data_.mutable_npz()->set_classes(2);
  ExpectRefused("test.npz", HasSubstr("expected classes from 0 to 1 (data.npz.classes), found 3"));
  fs::remove(dir_ / "train.npz");
  EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, HasSubstr("expected arrays for training"));
  fs::remove(dir_ / "test.npz");
  EXPECT_MUSTER_ERROR(Open(), ExitCode::kData, HasSubstr("expected train.npz"));
}

TEST_F(NpzTest, FilesOfOtherKindsAreNamed) {
  const auto expect = [&](const std::string& bytes, const char* text) {
    WriteBytes(dir_ / "train.npz", bytes);
    ExpectRefused("train.npz", HasSubstr(text));
  };
  expect("", "an empty file");
  expect("a,b,c\n", "something else");
  expect(Npy({2, 2}, Count<float>(4)), "numpy.save");
  Use(dir_ / "nowhere.npz");
  ExpectRefused("nowhere.npz", HasSubstr("No such file"));
}

// Accepted files are complete. Only a date, or the length of a note at the end, may differ.
TEST_F(NpzTest, EveryTruncationAndDamageIsRefused) {
  WriteBoth(Npy({2, 2}, Count<float>(4)), Npy<int64_t>({2}, {0, 1}), /*compressed=*/true);
  ResolveFromFiles(data_);
  const std::string whole = ReadBytes(dir_ / "train.npz");
  const uint64_t fingerprint = Open().train->Fingerprint();
  int refused = 0;
  const auto try_bytes = [&](const std::string& bytes) {
    WriteBytes(dir_ / "train.npz", bytes);
    try {
      EXPECT_EQ(Open().train->Fingerprint(), fingerprint);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_THAT(std::string(error.what()), HasSubstr("train.npz"));
    }
  };
  for (size_t size = 0; size < whole.size(); ++size) try_bytes(whole.substr(0, size));
  EXPECT_GE(refused, static_cast<int>(whole.size()) - 3);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x21);
    try_bytes(bytes);
  }
}

TEST_F(NpzTest, AnArrayThatIsThereTwiceIsRefused) {
  const std::string x = Npy({2, 2}, Count<float>(4)), y = Npy<int64_t>({2}, {0, 1});
  WriteBoth(x, y);
  Write("train.npz", {{"x", x}, {"y", y}, {"x", x}});
  ExpectRefused("train.npz", HasSubstr("x.npy"));
}

// The header's shape and the archive's size agree, but exceed what the file can hold.
TEST_F(NpzTest, AnArchiveThatClaimsTooMuchIsRefused) {
  const int64_t rows = int64_t{1} << 30;
  WriteBoth(NpyBytes("'|u1'", {rows, 4}, ""), Npy<int64_t>({2}, {0, 1}));
  std::string bytes = ReadBytes(dir_ / "train.npz");
  const size_t entry = bytes.find("PK\1\2");
  const uint32_t claimed = 0xfffffff0;
  for (const size_t at : {size_t{20}, size_t{24}})
    bytes.replace(entry + at, 4, reinterpret_cast<const char*>(&claimed), 4);
  WriteBytes(dir_ / "train.npz", bytes);
  ExpectRefused("train.npz", HasSubstr("it claims to have 4294967280 bytes"));
}

}  // namespace
}  // namespace muster
