// `muster data check` on small sets with one mistake each.
#include <fmt/core.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/data/check_command.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_dir.h"
#include "tests/image/encode.h"
#include "worker/data/image_folder.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Paths = std::vector<std::string>;

std::string Text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

std::string Png(uint16_t grey, uint32_t height = 4, uint32_t width = 4) {
  return Text(EncodePng({.height = height,
                         .width = width,
                         .samples = std::vector<uint16_t>(height * width, grey),
                         .color_type = 0}));
}

std::string Jpeg(int height, int width) {
  return Text(EncodeJpeg({.height = height, .width = width, .pixels = Photo(height, width, 3)}));
}

class CheckPhotosTest : public ::testing::Test {
 protected:
  CheckPhotosTest() {
    Write("train/cat/1.png", Png(1));
    Write("train/cat/2.jpg", Jpeg(20, 30));
    Write("train/dog/1.jpeg", Jpeg(40, 10));
    Write("val/cat/1.png", Png(2, 5, 7));
    Write("val/dog/1.png", Png(3));
  }

  void Write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((dir_ / name).parent_path());
    WriteBytes(dir_ / name, bytes);
  }
  PhotoReport Check(const std::string& exclude = "") const {
    return CheckPhotos(dir_.string(), exclude, [](int64_t, int64_t) {});
  }
  // The paths of all issues of this kind.
  std::vector<Paths> Found(const std::string& kind) const {
    std::vector<Paths> found;
    for (const PhotoIssue& issue : Check().issues) {
      if (kPhotoIssues[issue.kind].name == kind) found.push_back(issue.paths);
    }
    return found;
  }
  // The description of the only damaged file.
  std::string Damage() const {
    const PhotoReport report = Check();
    EXPECT_EQ(report.issues.size(), 1U);
    EXPECT_STREQ(kPhotoIssues[report.issues.at(0).kind].name, "damaged");
    EXPECT_EQ(report.grade(), PhotoGrade::kWrong);
    return report.issues.at(0).text;
  }
  std::string List(const std::string& lines) const {
    WriteBytes(dir_ / "list", lines);
    return (dir_ / "list").string();
  }
  config::Data Data(const std::string& exclude) const {
    config::Data data;
    data.set_format(config::Data::IMAGE_FOLDER);
    data.set_dir(dir_.string());
    data.add_class_names("cat");
    data.add_class_names("dog");
    data.mutable_preprocess()->set_crop_height(4);
    data.mutable_preprocess()->set_crop_width(4);
    data.mutable_image_folder()->set_exclude(exclude);
    return data;
  }
  Datasets Open(const std::string& exclude) const { return OpenImageFolder(Data(exclude), 1); }

  const TempDir dir_;
};

TEST_F(CheckPhotosTest, AGoodSetIsCountedAndMeasured) {
  const PhotoReport report = Check();
  EXPECT_THAT(report.issues, IsEmpty());
  EXPECT_EQ(report.grade(), PhotoGrade::kNote);
  EXPECT_THAT(report.classes, ElementsAre("cat", "dog"));
  ASSERT_EQ(report.sets.size(), 2U);
  EXPECT_EQ(report.sets[0].name, "train");
  EXPECT_THAT(report.sets[0].images, ElementsAre(2, 1));
  EXPECT_EQ(report.sets[1].name, "val");
  EXPECT_THAT(report.sets[1].images, ElementsAre(1, 1));
  EXPECT_EQ(report.smallest, (ImageSize{4, 4}));
  EXPECT_EQ(report.median, (ImageSize{5, 7}));
  EXPECT_EQ(report.largest, (ImageSize{20, 30}));
}

TEST_F(CheckPhotosTest, AFolderWithoutSetsNeedsAFraction) {
  fs::remove_all(dir_ / "val");
  const PhotoReport report = CheckPhotos((dir_ / "train").string(), "", [](int64_t, int64_t) {});
  EXPECT_EQ(report.sets.at(0).name, "");
  EXPECT_EQ(report.grade(), PhotoGrade::kNote);
  ASSERT_EQ(report.issues.size(), 1U);
  EXPECT_THAT(report.issues[0].text, HasSubstr("validation_fraction"));
  EXPECT_EQ(Found("remarks").size(), 1U);
  EXPECT_EQ(PhotoReportLines(report).back(), "Training would work with data.validation_fraction.");
  EXPECT_EQ(nlohmann::json::parse(PhotoReportJson(report))["verdict"],
            "Training would work with data.validation_fraction.");
}

TEST_F(CheckPhotosTest, AFolderOneLevelTooHighIsNamed) {
  fs::create_directory(dir_ / "train/cat/deeper");
  fs::remove_all(dir_ / "train/dog");
  fs::remove_all(dir_ / "val");
  EXPECT_THAT(Found("layout"), ElementsAre(Paths{"cat"}));
  config::Data data;
  data.set_format(config::Data::IMAGE_FOLDER);
  data.set_dir(dir_ / "train");
  EXPECT_MUSTER_ERROR(ResolveFromFiles(data), ExitCode::kData, HasSubstr("train/cat"));
}

TEST_F(CheckPhotosTest, NoClassesAreAnError) {
  fs::remove_all(dir_ / "train");
  fs::remove_all(dir_ / "val");
  EXPECT_MUSTER_ERROR(Check(), ExitCode::kData, HasSubstr("expected a folder of images"));
}

TEST_F(CheckPhotosTest, DamagedFilesAreNamedWithTheDecodersMessage) {
  const std::string jpeg = Jpeg(32, 32), png = Png(9, 30, 30);
  for (const auto& [name, bytes] : {std::pair{"train/cat/x.jpg", jpeg.substr(0, jpeg.size() / 2)},
                                    {"train/cat/x.jpg", jpeg.substr(0, jpeg.size() - 2)},
                                    {"val/dog/deep/er/x.png", png.substr(0, png.size() - 30)},
                                    {"val/dog/x.png", std::string()}}) {
    Write(name, bytes);
    EXPECT_THAT(Damage(), AllOf(Not(IsEmpty()), Not(HasSubstr(dir_.string()))));
    EXPECT_THAT(Found("damaged"), ElementsAre(Paths{name}));
    fs::remove(dir_ / name);
  }
  std::string broken = Png(9, 200, 200);
  broken[broken.size() / 2] ^= 0x40;
  Write("train/dog/x.png", broken);
  EXPECT_THAT(Damage(), HasSubstr("PNG"));
}

TEST_F(CheckPhotosTest, OtherKindsOfFileAreNamed) {
  const auto said_of = [&](const std::string& bytes) {
    Write("train/cat/x.jpg", bytes);
    return Damage();
  };
  EXPECT_THAT(said_of("RIFF\x24\1\1\1WEBPVP8 "), HasSubstr("a WebP image"));
  EXPECT_THAT(said_of("GIF89a\1\1"), HasSubstr("a GIF image"));
  EXPECT_THAT(said_of("<!DOCTYPE html><title>404</title>"), HasSubstr("HTML"));
  EXPECT_THAT(said_of(std::string("\0\0\0\x18", 4) + "ftypavif"), HasSubstr("AVIF"));
  EXPECT_THAT(said_of("some text"), HasSubstr("73 6F 6D 65"));
}

TEST_F(CheckPhotosTest, APngNamedJpgIsANote) {
  Write("train/cat/x.JPG", Png(9));
  Write("train/cat/y.png", Jpeg(8, 9));
  EXPECT_THAT(Found("other_kind"), ElementsAre(Paths{"train/cat/x.JPG"}, Paths{"train/cat/y.png"}));
  EXPECT_EQ(Check().grade(), PhotoGrade::kNote);
}

TEST_F(CheckPhotosTest, ForeignFilesAreNotes) {
  Write("train/cat/readme.txt", "");
  Write("val/dog/b.webp", "RIFF");
  Write("val/dog/.hidden", "");
  EXPECT_THAT(Found("foreign"),
              ElementsAre(Paths{"train/cat/readme.txt"}, Paths{"val/dog/b.webp"}));
  EXPECT_EQ(Check().grade(), PhotoGrade::kNote);
}

TEST_F(CheckPhotosTest, WarningsOfTheDecoderAreCounted) {
  std::string jpeg = Jpeg(32, 32);
  jpeg.insert(20, "rubbish");  // between the first two markers
  Write("train/cat/x.jpg", jpeg);
  EXPECT_THAT(Found("warnings"), ElementsAre(Paths{"train/cat/x.jpg"}));
  EXPECT_GT(Check().warnings, 0);
  EXPECT_EQ(Check().grade(), PhotoGrade::kNote);
}

TEST_F(CheckPhotosTest, CopiesBetweenClassesAndSetsAreSuspicious) {
  Write("train/cat/copy.png", Png(1));
  EXPECT_THAT(Found("duplicates"), ElementsAre(Paths{"train/cat/1.png", "train/cat/copy.png"}));
  EXPECT_EQ(Check().grade(), PhotoGrade::kNote);
  Write("val/cat/copy.png", Png(1));
  EXPECT_THAT(Found("duplicates_between_sets"),
              ElementsAre(Paths{"val/cat/copy.png", "train/cat/1.png", "train/cat/copy.png"}));
  EXPECT_EQ(Check().grade(), PhotoGrade::kSuspicious);
  Write("train/dog/copy.png", Png(1));
  EXPECT_THAT(Found("duplicates_between_classes"),
              ElementsAre(Paths{"val/cat/copy.png", "train/cat/1.png", "train/cat/copy.png",
                                "train/dog/copy.png"}));
  EXPECT_EQ(Check().grade(), PhotoGrade::kSuspicious);
}

TEST_F(CheckPhotosTest, ClassesMustBeTheSame) {
  Write("train/bird/1.txt", "");
  Write("val/Cat/1.png", Png(4));
  EXPECT_THAT(Found("empty_classes"), ElementsAre(Paths{"train/bird"}));
  EXPECT_THAT(Found("missing_classes"), ElementsAre(Paths{"train/Cat"}, Paths{"val/bird"}));
  EXPECT_THAT(Found("spellings"), ElementsAre(Paths{"Cat", "cat"}));
  EXPECT_THAT(PhotoReportLines(Check()),
              AllOf(Contains("WRONG       classes missing from a set: 2"),
                    Contains("  train/Cat: there is no such folder")));
  EXPECT_EQ(Check().grade(), PhotoGrade::kWrong);
}

TEST_F(CheckPhotosTest, TheReportNamesTheFirstFilesAndCountsTheOthers) {
  EXPECT_EQ(PhotoReportLines(Check()).back(), "Training would work.");
  for (int i = 10; i < 22; ++i) Write("train/cat/" + std::to_string(i) + ".jpg", "text");
  Write("val/dog/copy.png", Png(1));
  const std::vector<std::string> lines = PhotoReportLines(Check());
  EXPECT_THAT(lines[0], HasSubstr("classes: 2, images: 18"));
  EXPECT_THAT(lines, Contains("WRONG       files that cannot be read or decoded: 12"));
  EXPECT_THAT(lines, Contains(StartsWith("  train/cat/19.jpg: expected a JPEG or PNG file")));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("train/cat/20.jpg"))));
  EXPECT_THAT(lines, Contains("  and 2 more"));
  EXPECT_THAT(lines, Contains("SUSPICIOUS  images that are in several classes: 1"));
  EXPECT_THAT(lines, Contains("  val/dog/copy.png = train/cat/1.png"));
  EXPECT_EQ(lines.back(), "Training would stop.");
}

TEST_F(CheckPhotosTest, JsonNamesAllFiles) {
  for (int i = 10; i < 22; ++i) Write("train/cat/" + std::to_string(i) + ".jpg", "text");
  const auto json = nlohmann::json::parse(PhotoReportJson(Check()));
  EXPECT_EQ(json["verdict"], "Training would stop.");
  EXPECT_EQ(json["sets"][0]["classes"]["cat"], 14);
  EXPECT_EQ(json["sets"][1]["images"], 2);
  EXPECT_EQ(json["median"]["width"], 7);
  EXPECT_EQ(json["issues"]["damaged"].size(), 12U);
  EXPECT_EQ(json["issues"]["damaged"][0]["paths"], Paths{"train/cat/10.jpg"});
  EXPECT_TRUE(json["issues"]["foreign"].is_array());
  EXPECT_EQ(PhotoReportJson(Check()), PhotoReportJson(Check()));
}

TEST_F(CheckPhotosTest, AListOfExclusionsMakesTheSetFit) {
  Write("train/cat/bad.jpg", "text");
  Write("train/cat/copy.png", Png(3));
  Write("val/cat/copy.png", Png(3));
  const std::string text = ExclusionsText(Check());
  EXPECT_THAT(text, AllOf(StartsWith("# "), HasSubstr("\ntrain/cat/bad.jpg\ntrain/cat/copy.png\n"
                                                      "val/dog/1.png\n")));
  Write("val/dog/2.png", Png(7));  // otherwise the class would be empty
  const PhotoReport report = Check(List(text));
  EXPECT_EQ(report.grade(), PhotoGrade::kNote);
  EXPECT_THAT(report.issues, ElementsAre(::testing::Field(&PhotoIssue::text, HasSubstr("3"))));
  EXPECT_EQ(ExclusionsText(report), text);
  const Datasets sets = Open(List(text));
  EXPECT_EQ(sets.train->size(), 3);
  EXPECT_EQ(sets.validation->size(), 3);
  EXPECT_THAT(sets.remark, HasSubstr("list: 3"));
}

TEST_F(CheckPhotosTest, ABrokenLinkIsADamagedFile) {
  fs::create_symlink("nowhere", dir_ / "train/cat/gone.png");
  fs::create_symlink("nowhere", dir_ / "train/cat/gone.txt");  // not an image
  EXPECT_EQ(Damage(), "broken symbolic link");
  EXPECT_THAT(Found("damaged"), ElementsAre(Paths{"train/cat/gone.png"}));
  EXPECT_THAT(Check().sets[0].images, ElementsAre(3, 1));
  EXPECT_MUSTER_ERROR(Open(""), ExitCode::kData,
                      HasSubstr(dir_.string() + "/train/cat/gone.png: broken symbolic link"));
  const std::string list = List(ExclusionsText(Check()));
  EXPECT_EQ(Check(list).grade(), PhotoGrade::kNote);
  EXPECT_EQ(Open(list).train->size(), 3);
}

TEST_F(CheckPhotosTest, WhatCannotBeReadIsDamaged) {
  fs::create_symlink("loop", dir_ / "train/loop");     // no class
  fs::create_symlink("nowhere", dir_ / "train/gone");  // no class, either
  fs::create_symlink("itself.png", dir_ / "train/cat/itself.png");
  fs::create_directory(dir_ / "train/cat/deep");
  fs::create_symlink("..", dir_ / "train/cat/deep/up");
  fs::create_symlink("..", dir_ / "train/cat/out");  // to all classes
  fs::create_symlink(".", dir_ / "val/dog/here");
  Write("train/dog/large.png", "");
  fs::resize_file(dir_ / "train/dog/large.png", (int64_t{1} << 30) + 1);
  EXPECT_THAT(Check().classes, ElementsAre("cat", "dog"));
  std::vector<Paths> damaged{{"train/cat/deep/up"},
                             {"train/cat/itself.png"},
                             {"train/cat/out"},
                             {"train/dog/large.png"},
                             {"val/dog/here"}};
  if (::geteuid() != 0) {  // root may read everything
    Write("val/cat/secret.png", Png(4));
    fs::permissions(dir_ / "val/cat/secret.png", fs::perms::none);
    damaged.insert(damaged.end() - 1, {"val/cat/secret.png"});
  }
  EXPECT_THAT(Found("damaged"), ::testing::ElementsAreArray(damaged));
  EXPECT_MUSTER_ERROR(Open(""), ExitCode::kData, HasSubstr("train/cat/deep/up: "));
  EXPECT_EQ(Check(List(ExclusionsText(Check()))).grade(), PhotoGrade::kNote);
}

TEST_F(CheckPhotosTest, LinesOfAListMayBeCommentsOrNameNoFile) {
  const Datasets sets = Open(List("# comment\r\n\r\n./train//cat/1.png\r\ntrain/cat/none.png\n"));
  EXPECT_EQ(sets.train->size(), 2);
  EXPECT_THAT(sets.remark,
              AllOf(HasSubstr("images excluded by "), HasSubstr("for example train/cat/none.png")));
  EXPECT_THAT(Open(List("train/dog/1.jpeg.txt\n")).remark, Not(HasSubstr("images excluded by ")));
  EXPECT_MUSTER_ERROR(Open(List("train/dog/1.jpeg")), ExitCode::kData, HasSubstr("train/dog"));
  EXPECT_MUSTER_ERROR(Open((dir_ / "none").string()), ExitCode::kData,
                      AllOf(HasSubstr("data.image_folder.exclude"), HasSubstr("none")));
  EXPECT_MUSTER_ERROR(Open(dir_.string()), ExitCode::kData, HasSubstr("a folder"));
}

TEST_F(CheckPhotosTest, ABadFileInTrainingNamesTheCommand) {
  Write("val/cat/1.png", "text");
  const Datasets sets = Open("");
  std::vector<uint8_t> buffer;
  EXPECT_MUSTER_ERROR(sets.validation->Planes(0, buffer), ExitCode::kData,
                      AllOf(StartsWith(dir_.string() + "/val/cat/1.png: expected a JPEG"),
                            HasSubstr("`muster data check " + dir_.string() + "`")));
}

TEST_F(CheckPhotosTest, NamesThatALineCannotHold) {
  Write("train/cat/a\nb.jpg", "text");
  EXPECT_MUSTER_ERROR(ExclusionsText(Check()), ExitCode::kData, HasSubstr("rename"));
  fs::remove_all(dir_ / "train/cat/a\nb.jpg");
  Write("train/#x/1.png", Png(11));
  Write("train/#x/2.png", "");
  Write("val/#x/1.png", Png(12));
  const std::string text = ExclusionsText(Check());
  EXPECT_THAT(text, HasSubstr("\ntrain/#x/2.png\n"));
  EXPECT_EQ(Check(List(text)).grade(), PhotoGrade::kNote);
  const std::string list = List("./#x/2.png");
  EXPECT_THAT(CheckPhotos((dir_ / "train").string(), list, [](int64_t, int64_t) {}).issues,
              Each(::testing::Field(&PhotoIssue::text, Not(HasSubstr("expected")))));
}

TEST_F(CheckPhotosTest, TheCommandPrintsAndWritesTheList) {
  Write("train/cat/bad.jpg", "text");
  const CheckArguments arguments{.dir = dir_.string(), .write_exclusions = (dir_ / "new").string()};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunCheck(arguments), static_cast<int>(ExitCode::kData));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("train/cat/bad.jpg: "),
                    HasSubstr(fmt::format("Wrote {}, 1 image\n", arguments.write_exclusions)),
                    EndsWith(fmt::format(" --set data.image_folder.exclude={}\n",
                                         arguments.write_exclusions))));
  EXPECT_THAT(ReadBytes(arguments.write_exclusions), HasSubstr("\ntrain/cat/bad.jpg\n"));
  EXPECT_MUSTER_ERROR(RunCheck({.dir = dir_.string(), .write_exclusions = dir_.string()}),
                      ExitCode::kData, HasSubstr(dir_.string()));
  // Other existing files are not overwritten.
  EXPECT_MUSTER_ERROR(RunCheck({.dir = dir_.string(), .write_exclusions = List("old")}),
                      ExitCode::kUsage, HasSubstr("list"));
  EXPECT_EQ(ReadBytes(dir_ / "list"), "old");
}

TEST_F(CheckPhotosTest, FoldersThatTrainingRefuses) {
  fs::remove_all(dir_ / "train");
  const PhotoReport report = Check();
  EXPECT_EQ(report.grade(), PhotoGrade::kWrong);
  EXPECT_THAT(report.issues, Contains(::testing::Field(&PhotoIssue::text, HasSubstr("train"))));
}

}  // namespace
}  // namespace muster::testing
