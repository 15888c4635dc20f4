// A file is either complete or absent, whatever fails while it is written.
#include "common/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() { IgnoreFileSizeSignal(); }

  // Returns the error of `action`.
  template <typename Action>
  std::string ErrorOf(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kFailure);
      return error.what();
    }
    return "no error";
  }
  static std::span<const std::byte> Bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  size_t Files() const {
    const std::filesystem::directory_iterator all(dir_.path());
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }
  // Limits the file size to simulate a full disk.
  static void LimitFileSize(rlim_t bytes) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }

  const TempDir dir_;
  const std::string path_ = (dir_ / "file").string();
};

TEST_F(AtomicFileTest, AppearsWithCommitAlone) {
  AtomicFile file(path_, 100);  // more than will be written
  file.Write(Bytes("ab"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  file.Write(Bytes("cd"));
  file.Commit();
  EXPECT_EQ(ReadBytes(path_), "abcd");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitEverythingStaysAsItWas) {
  WriteBytes(path_, "old");
  {
    AtomicFile file(path_);
    file.Write(Bytes("new"));
  }
  EXPECT_EQ(ReadBytes(path_), "old");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, WhatAKilledProcessLeftIsOverwritten) {
  WriteBytes(path_ + ".partial", "a long text of a process that was killed");
  WriteFileAtomically(path_, "new");
  EXPECT_EQ(ReadBytes(path_), "new");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, RoomThatIsNotThereIsNoticedBeforehand) {
  WriteBytes(path_, "old");
  LimitFileSize(4096);
  const std::string error = ErrorOf([&] { AtomicFile file(path_, 5000); });
  EXPECT_THAT(error, HasSubstr(path_ + ": cannot be written: File too large"));
  EXPECT_EQ(ReadBytes(path_), "old");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, RoomThatEndsWhileItIsWrittenLeavesNothing) {
  WriteBytes(path_, "old");
  LimitFileSize(4096);
  AtomicFile file(path_);
  const std::string error = ErrorOf([&] { file.Write(Bytes(std::string(5000, 'x'))); });
  EXPECT_THAT(error, HasSubstr(path_ + ": cannot be written: File too large"));
  EXPECT_EQ(ReadBytes(path_), "old");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, WhatIsNoPlainFileIsNotReplaced) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(path_); }), HasSubstr("it is a folder"));
  EXPECT_THAT(ErrorOf([&] { AtomicFile file("/dev/null"); }), HasSubstr("it is a device"));
}

TEST_F(AtomicFileTest, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(path_ + "/x/y"); }),
              HasSubstr(path_ + "/x/y: cannot be created: No such file"));
}

TEST_F(AtomicFileTest, TwoWritersOfOneFileAreToldApart) {
  AtomicFile first(path_);
  EXPECT_THAT(ErrorOf([&] { AtomicFile second(path_); }), HasSubstr("another process is writing"));
  first.Write(Bytes("first"));
  first.Commit();
  EXPECT_EQ(ReadBytes(path_), "first");
  AtomicFile third(path_);
  third.Commit();
  EXPECT_EQ(ReadBytes(path_), "");
}

}  // namespace
}  // namespace muster::testing
