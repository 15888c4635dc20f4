// Downloading and unpacking, from files and from a server that behaves badly in every usual way.
#include "launch/data/download.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "launch/data/md5.h"
#include "launch/data/synthesize.h"
#include "tests/data/expect_error.h"
#include "tests/data/local_server.h"
#include "tests/data/test_sets.h"
#include "worker/data/mnist.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LocalServer;
using ::testing::Not;
using testing::Ok;
using testing::Ranged;
using testing::ReadBytes;
using testing::Records;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteCifar10;

constexpr const char* kName = "set.tar.gz";

using Entries = std::map<std::string, std::string>;

Entries GoodEntries() {
  Entries entries;
  for (unsigned i = 0; i < 5; ++i) {
    entries[fmt::format("{}/{}", kCifar10Folder, kCifar10TrainFiles[i])] = Records(3, i);
  }
  entries[fmt::format("{}/{}", kCifar10Folder, kCifar10TestFile)] = Records(4, 5);
  entries[fmt::format("{}/batches.meta.txt", kCifar10Folder)] = "airplane\n";
  return entries;
}

// Writes a .tar.gz; an empty content makes a directory, one that begins with "->" a link.
void WriteArchive(const fs::path& path, const Entries& entries) {
  const std::unique_ptr<archive, int (*)(archive*)> out(archive_write_new(), &archive_write_free);
  archive_write_add_filter_gzip(out.get());
  archive_write_set_format_ustar(out.get());
  ASSERT_EQ(archive_write_open_filename(out.get(), path.c_str()), ARCHIVE_OK);
  for (const auto& [name, content] : entries) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                         &archive_entry_free);
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_perm(entry.get(), 0755);
    const bool link = content.starts_with("->");
    archive_entry_set_filetype(entry.get(), content.empty() ? AE_IFDIR
                                            : link          ? AE_IFLNK
                                                            : AE_IFREG);
    if (link) archive_entry_set_symlink(entry.get(), content.c_str() + 2);
    archive_entry_set_size(entry.get(), link ? 0 : static_cast<int64_t>(content.size()));
    ASSERT_EQ(archive_write_header(out.get(), entry.get()), ARCHIVE_OK);
    if (!link) archive_write_data(out.get(), content.data(), content.size());
  }
}

class Download : public ::testing::Test {
 protected:
  Download() : said_(std::tmpfile()), progress_(std::tmpfile()) { SetArchive(GoodEntries()); }
  ~Download() override {
    std::fclose(said_);
    std::fclose(progress_);
  }

  void SetArchive(const Entries& entries) {
    WriteArchive(source_ / kName, entries);
    SetArchiveBytes(ReadBytes(source_ / kName));
  }
  // Also sets the size and checksum that are expected.
  void SetArchiveBytes(const std::string& bytes) {
    WriteBytes(source_ / kName, bytes);
    bytes_ = bytes;
    options_ = {.url = "file://" + (source_ / kName).string(),
                .md5 = Md5OfFile(source_ / kName),
                .bytes = static_cast<int64_t>(bytes.size()),
                .attempts = 1,
                .connect_timeout_s = 5,
                .stall_timeout_s = 5,
                .out = said_,
                .progress = progress_};
  }

  void Run() { DownloadCifar10(dir_.string(), options_); }
  void RunFrom(const LocalServer& server) {
    options_.url = server.Url(kName);
    Run();
  }

  void ExpectWhole() const {
    EXPECT_EQ(OpenCifar10(dir_.string()).train->size(), 15);
    EXPECT_EQ(OpenCifar10(dir_.string()).test->size(), 4);
    EXPECT_FALSE(fs::exists(part()));
    EXPECT_FALSE(fs::exists(unfinished()));
  }
  void ExpectNoSet() const {
    EXPECT_FALSE(fs::exists(dir_ / kCifar10Folder));
    EXPECT_FALSE(fs::exists(unfinished()));
  }
  fs::path part() const { return dir_ / (std::string(kName) + ".part"); }
  fs::path unfinished() const { return dir_ / ".cifar-10-batches-bin.unfinished"; }

  static std::string Contents(std::FILE* file) {
    std::rewind(file);
    std::string text(100000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    return text;
  }

  const TempDir source_, dir_;
  std::FILE* const said_;
  std::FILE* const progress_;
  std::string bytes_;
  DownloadOptions options_;
};

TEST_F(Download, DefaultsAreThePublishersArchive) {
  const DownloadOptions defaults;
  EXPECT_EQ(defaults.url, "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz");
  EXPECT_EQ(defaults.md5, "c32a1d4ab5d03f1284b67883e8d87530");
  EXPECT_EQ(defaults.bytes, 170052171);
}

TEST_F(Download, FromAFile) {
  Run();
  ExpectWhole();
  EXPECT_EQ(ReadBytes(dir_ / kCifar10Folder / "data_batch_2.bin"), Records(3, 1));
  EXPECT_THAT(Contents(said_), HasSubstr("15 training and 4 test images"));
}

TEST_F(Download, FromAServerWithProgressInPlainLines) {
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(bytes_)}; });
  RunFrom(server);
  ExpectWhole();
  EXPECT_THAT(Contents(progress_),
              AllOf(HasSubstr("100 %"), HasSubstr("MB/s"), Not(HasSubstr("\r"))));
}

TEST_F(Download, WhatIsAlreadyThereIsNotTouched) {
  Run();
  options_.url = "http://127.0.0.1:1/unreachable";
  Run();
  EXPECT_THAT(Contents(said_), HasSubstr("already there"));
  ExpectWhole();
}

TEST_F(Download, SomethingElseInThePlaceIsAnError) {
  WriteCifar10(dir_ / kCifar10Folder);
  WriteBytes(dir_ / kCifar10Folder / "data_batch_1.bin", "short");
  EXPECT_MUSTER_ERROR(Run(), ExitCode::kData,
                      AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("Move it away")));
  EXPECT_EQ(ReadBytes(dir_ / kCifar10Folder / "data_batch_1.bin"), "short");
}

TEST_F(Download, AProceduralSetIsNotTakenForTheRealOne) {
  SynthesizeCifar10(dir_.string(), 1, 2, 2, said_);
  EXPECT_MUSTER_ERROR(Run(), ExitCode::kData, HasSubstr("procedural"));
}

TEST_F(Download, AnArchivePutThereByHandIsUsedAndKept) {
  WriteBytes(dir_ / kName, bytes_);
  options_.url = std::string("http://127.0.0.1:1/") + kName;
  Run();
  ExpectWhole();
  EXPECT_TRUE(fs::exists(dir_ / kName));
}

TEST_F(Download, AWrongArchivePutThereByHandIsNamed) {
  WriteBytes(dir_ / kName, bytes_.substr(1));
  EXPECT_MUSTER_ERROR(
      Run(), ExitCode::kData,
      AllOf(HasSubstr((dir_ / kName).string()),
            HasSubstr(fmt::format("expected {} bytes", bytes_.size())), HasSubstr("Remove it")));
  ExpectNoSet();
}

TEST_F(Download, OfflineSaysWhatToPutWhere) {
  options_.url = std::string("http://127.0.0.1:1/") + kName;
  EXPECT_MUSTER_ERROR(
      Run(), ExitCode::kFailure,
      AllOf(HasSubstr(options_.url), HasSubstr(options_.md5),
            HasSubstr("put it at " + (dir_ / kName).string()), HasSubstr("muster data synth")));
  ExpectNoSet();
}

TEST_F(Download, NotFoundIsAnError) {
  const LocalServer server([](const std::string&) {
    return LocalServer::Answer{"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"};
  });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kFailure, HasSubstr("404"));
  ExpectNoSet();
}

TEST_F(Download, AWrongChecksumIsAnErrorAndTheFileGoes) {
  std::string other = bytes_;
  other.back() ^= 1;
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(other)}; });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kData,
                      AllOf(HasSubstr("expected MD5 " + options_.md5), HasSubstr("found")));
  ExpectNoSet();
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(Download, ALongerFileIsCutOff) {
  const LocalServer server(
      [&](const std::string&) { return LocalServer::Answer{Ok(bytes_ + "more")}; });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kData, HasSubstr("more than the expected"));
  ExpectNoSet();
}

TEST_F(Download, AnInterruptedTransferGoesOnWhereItStopped) {
  options_.attempts = 3;
  const LocalServer server([&](const std::string& request) {
    return LocalServer::Answer{Ranged(request, bytes_, bytes_.size() / 2)};
  });
  RunFrom(server);
  ExpectWhole();
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_THAT(server.requests()[1], HasSubstr(fmt::format("bytes={}-", bytes_.size() / 2)));
  EXPECT_THAT(Contents(progress_), HasSubstr("going on at byte"));
}

TEST_F(Download, AnInterruptedTransferIsGoneOnFromByTheNextRun) {
  const LocalServer server([&](const std::string& request) {
    return LocalServer::Answer{Ranged(request, bytes_, bytes_.size() / 2)};
  });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kFailure, HasSubstr("Run this again"));
  ExpectNoSet();
  EXPECT_EQ(fs::file_size(part()), bytes_.size() / 2);
  RunFrom(server);
  ExpectWhole();
}

TEST_F(Download, AServerThatCannotResumeIsAskedForEverything) {
  WriteBytes(part(), bytes_.substr(0, 100));
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(bytes_)}; });
  RunFrom(server);
  ExpectWhole();
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(Download, APartOfAnotherFileIsThrownAway) {
  WriteBytes(part(), std::string(100, 'x'));
  const LocalServer server(
      [&](const std::string& request) { return LocalServer::Answer{Ranged(request, bytes_)}; });
  RunFrom(server);
  ExpectWhole();
  EXPECT_THAT(Contents(said_), HasSubstr("Starting again"));
}

TEST_F(Download, AStalledTransferEnds) {
  options_.stall_timeout_s = 1;
  const LocalServer server([&](const std::string&) {
    return LocalServer::Answer{.bytes = Ok(bytes_, 1000), .hangs = true};
  });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kFailure, HasSubstr("too slow"));
  ExpectNoSet();
  EXPECT_TRUE(fs::exists(part()));
}

TEST_F(Download, AnInterruptLeavesNothingHalfDone) {
  int address[2];
  ASSERT_EQ(::pipe(address), 0);
  // Forked before there is a second thread.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    char url[200] = {};
    if (::read(address[0], url, sizeof(url) - 1) <= 0) ::_exit(99);
    options_.url = url;
    try {
      Run();
    } catch (...) {
    }
    ::_exit(98);
  }
  const LocalServer server([&](const std::string& request) {
    return LocalServer::Answer{.bytes = Ranged(request, bytes_, bytes_.size() / 2),
                               .hangs = request.find("Range") == std::string::npos};
  });
  const std::string url = server.Url(kName);
  ASSERT_EQ(::write(address[1], url.data(), url.size()), static_cast<ssize_t>(url.size()));
  std::error_code missing;
  for (int i = 0; i < 1000 && fs::file_size(part(), missing) != bytes_.size() / 2; ++i) {
    ::usleep(10000);
  }
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  for (int fd : address) ::close(fd);
  ExpectNoSet();
  EXPECT_EQ(fs::file_size(part()), bytes_.size() / 2);
  RunFrom(server);
  ExpectWhole();
}

TEST_F(Download, RemovesWhatAnInterruptedUnpackingLeft) {
  fs::create_directories(unfinished());
  WriteBytes(unfinished() / "data_batch_1.bin", "half");
  Run();
  ExpectWhole();
}

TEST_F(Download, AnArchiveMayOnlyHoldFilesOfTheSet) {
  for (const auto& [name, content] : Entries{{"elsewhere/file", "x"},
                                             {"cifar-10-batches-bin/../../file", "x"},
                                             {"cifar-10-batches-bin/deep/file", "x"},
                                             {"/tmp/file", "x"},
                                             {"cifar-10-batches-bin/link", "->/etc/passwd"}}) {
    SCOPED_TRACE(name);
    Entries entries = GoodEntries();
    entries[name] = content;
    SetArchive(entries);
    EXPECT_MUSTER_ERROR(Run(), ExitCode::kData,
                        AllOf(HasSubstr("expected regular files in"), HasSubstr(name)));
    ExpectNoSet();
    fs::remove(part());
  }
}

TEST_F(Download, DirectoriesAndDotPathsInAnArchiveAreFine) {
  Entries entries;
  entries["./cifar-10-batches-bin/"] = "";
  for (const auto& [name, content] : GoodEntries()) entries["./" + name] = content;
  SetArchive(entries);
  Run();
  ExpectWhole();
}

TEST_F(Download, AnUnreadableArchiveIsNamed) {
  SetArchiveBytes(bytes_.substr(0, bytes_.size() / 2));
  EXPECT_MUSTER_ERROR(Run(), ExitCode::kData, HasSubstr(kName));
  ExpectNoSet();
  fs::remove(part());
  SetArchiveBytes("this is no archive at all");
  EXPECT_MUSTER_ERROR(Run(), ExitCode::kData, HasSubstr("not a readable .tar.gz"));
  ExpectNoSet();
}

TEST_F(Download, AnIncompleteSetIsRefused) {
  Entries entries = GoodEntries();
  entries.erase("cifar-10-batches-bin/test_batch.bin");
  SetArchive(entries);
  EXPECT_MUSTER_ERROR(Run(), ExitCode::kData, HasSubstr("test_batch.bin"));
  ExpectNoSet();
}

TEST(Md5, OfKnownBytes) {  // RFC 1321, A.5
  const TempDir dir;
  WriteBytes(dir / "empty", "");
  EXPECT_EQ(Md5OfFile(dir / "empty"), "d41d8cd98f00b204e9800998ecf8427e");
  WriteBytes(dir / "abc", "abc");
  EXPECT_EQ(Md5OfFile(dir / "abc"), "900150983cd24fb0d6963f7d28e17f72");
}

// Files of MNIST's layout, as published: compressed.
class Mnist : public ::testing::Test {
 protected:
  Mnist() : said_(std::tmpfile()), progress_(std::tmpfile()) {
    Publish("train-images-idx3-ubyte.gz", Idx({3, 2, 2}, std::string(12, '\7')));
    Publish("train-labels-idx1-ubyte.gz", Idx({3}, std::string("\1\2\3")));
    Publish("t10k-images-idx3-ubyte.gz", Idx({1, 2, 2}, std::string(4, '\7')));
    Publish("t10k-labels-idx1-ubyte.gz", Idx({1}, std::string("\4")));
  }
  ~Mnist() override {
    std::fclose(said_);
    std::fclose(progress_);
  }

  static std::string Idx(const std::vector<uint8_t>& dimensions, const std::string& elements) {
    std::string text{'\0', '\0', '\x08', static_cast<char>(dimensions.size())};
    for (const uint8_t extent : dimensions) text += {'\0', '\0', '\0', static_cast<char>(extent)};
    return text + elements;
  }
  void Publish(const std::string& name, const std::string& plain) {
    const gzFile file = ::gzopen((source_ / name).c_str(), "wb");
    ::gzwrite(file, plain.data(), static_cast<unsigned>(plain.size()));
    ::gzclose(file);
    files_.push_back(
        {name, Md5OfFile(source_ / name), static_cast<int64_t>(fs::file_size(source_ / name))});
  }
  void Run(const std::string& mirror) {
    DownloadMnist(dir_.string(), files_,
                  {.url = mirror,
                   .attempts = 1,
                   .connect_timeout_s = 5,
                   .stall_timeout_s = 5,
                   .out = said_,
                   .progress = progress_});
  }
  std::string SourceUrl() const { return "file://" + source_.string() + "/"; }

  const TempDir source_, dir_;
  std::FILE* const said_;
  std::FILE* const progress_;
  std::vector<MnistFile> files_;
};

TEST_F(Mnist, FromAServer) {
  const LocalServer server([&](const std::string& request) {
    for (const MnistFile& file : files_) {
      if (request.find(file.name) == std::string::npos) continue;
      return LocalServer::Answer{Ok(ReadBytes(source_ / file.name))};
    }
    return LocalServer::Answer{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"};
  });
  Run(server.Url(""));
  EXPECT_EQ(OpenMnist(dir_.string()).train->size(), 3);
  EXPECT_EQ(OpenMnist(dir_.string()).test->size(), 1);
  EXPECT_EQ(server.requests().size(), 4u);
  Run("http://127.0.0.1:1/unreachable/");  // what is there is enough
}

TEST_F(Mnist, AWrongFileIsNotTaken) {
  files_[2].md5 = std::string(32, '0');
  EXPECT_MUSTER_ERROR(Run(SourceUrl()), ExitCode::kData,
                      AllOf(HasSubstr("t10k-images"), HasSubstr("MD5"), Not(HasSubstr("synth"))));
  EXPECT_FALSE(fs::exists(dir_ / files_[2].name));
  EXPECT_TRUE(fs::exists(dir_ / files_[0].name));  // where the next call goes on
}

TEST_F(Mnist, AnotherSetIsNotMixedWithIt) {
  WriteBytes(dir_ / "t10k-labels-idx1-ubyte", "mine");
  EXPECT_MUSTER_ERROR(Run(SourceUrl()), ExitCode::kData, HasSubstr("Move it away"));
  EXPECT_FALSE(fs::exists(dir_ / files_[0].name));
}

TEST_F(Mnist, ThePublishedFiles) {
  const std::vector<MnistFile> files = MnistFiles();
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].name, "train-images-idx3-ubyte.gz");
  EXPECT_EQ(files[0].md5, "f68b3c2dcbeaaa9fbdd348bbdeb94873");
  EXPECT_EQ(files[0].bytes, 9912422);
}

}  // namespace
}  // namespace muster
