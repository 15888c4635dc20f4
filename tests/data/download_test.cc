// Downloading and unpacking, from a server with all common faults.
#include "cli/data/download.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <csignal>
#include <map>
#include <memory>
#include <vector>

#include "cli/data/synthesize.h"
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
  Entries entries{{fmt::format("{}/", kCifar10Folder), ""}};
  for (unsigned i = 0; i < 5; ++i) {
    entries[fmt::format("{}/{}", kCifar10Folder, kCifar10TrainFiles[i])] = Records(3, i);
  }
  entries[fmt::format("{}/{}", kCifar10Folder, kCifar10TestFile)] = Records(4, 5);
  entries[fmt::format("{}/batches.meta.txt", kCifar10Folder)] = "airplane\n";
  return entries;
}

// Writes a .tar.gz. Empty contents make a directory; contents that start with "->" make a link.
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

std::string Md5Of(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

class Download : public ::testing::Test {
 protected:
  Download() { SetArchive(GoodEntries()); }

  void SetArchive(const Entries& entries) {
    WriteArchive(source_ / kName, entries);
    SetArchiveBytes(ReadBytes(source_ / kName));
  }
  void SetArchiveBytes(const std::string& bytes) {
    bytes_ = bytes;
    file_.checksum = Md5Of(bytes);
    file_.bytes = static_cast<int64_t>(bytes.size());
  }

  // Runs the download from an address without a server.
  void RunOffline() {
    file_.url = std::string("http://127.0.0.1:1/") + kName;
    DownloadCifar10(dir_.string(), file_);
  }
  void RunFrom(const LocalServer& server) {
    file_.url = server.Url(kName);
    DownloadCifar10(dir_.string(), file_);
  }
  // Puts the archive where a user would put it.
  void RunByHand() {
    WriteBytes(dir_ / kName, bytes_);
    RunOffline();
  }

  void ExpectWhole() const {
    EXPECT_EQ(OpenCifar10(dir_.string()).train->size(), 15);
    EXPECT_EQ(OpenCifar10(dir_.string()).test->size(), 4);
    EXPECT_EQ(ReadBytes(dir_ / kCifar10Folder / "data_batch_2.bin"), Records(3, 1));
    EXPECT_FALSE(fs::exists(part()));
    EXPECT_FALSE(fs::exists(unfinished()));
  }
  void ExpectNoSet() const {
    EXPECT_FALSE(fs::exists(dir_ / kCifar10Folder));
    EXPECT_FALSE(fs::exists(unfinished()));
  }
  fs::path part() const { return dir_ / (std::string(kName) + ".part"); }
  fs::path unfinished() const { return dir_ / ".cifar-10-batches-bin.unfinished"; }

  const TempDir source_, dir_;
  std::string bytes_;
  PublishedFile file_;
};

TEST_F(Download, IsUnpackedAndThenLeftAlone) {
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(bytes_)}; });
  RunFrom(server);
  ExpectWhole();
  RunOffline();
  ExpectWhole();
}

TEST_F(Download, SomethingElseInThePlaceIsAnError) {
  WriteCifar10(dir_ / kCifar10Folder);
  WriteBytes(dir_ / kCifar10Folder / "data_batch_1.bin", "short");
  EXPECT_MUSTER_ERROR(RunOffline(), ExitCode::kData, HasSubstr("data_batch_1.bin"));
  EXPECT_EQ(ReadBytes(dir_ / kCifar10Folder / "data_batch_1.bin"), "short");
}

TEST_F(Download, AProceduralSetIsNotTakenForTheRealOne) {
  SynthesizeCifar10(dir_.string(), 1, 2, 2);
  EXPECT_MUSTER_ERROR(RunOffline(), ExitCode::kData, HasSubstr(kSyntheticNote));
}

TEST_F(Download, AnArchivePutThereByHandIsUsedAndKept) {
  RunByHand();
  ExpectWhole();
  EXPECT_TRUE(fs::exists(dir_ / kName));
}

TEST_F(Download, AWrongArchivePutThereByHandIsNamedAndKept) {
  WriteBytes(dir_ / kName, bytes_.substr(1));
  EXPECT_MUSTER_ERROR(RunOffline(), ExitCode::kData, HasSubstr((dir_ / kName).string()));
  EXPECT_TRUE(fs::exists(dir_ / kName));
  ExpectNoSet();
}

TEST_F(Download, OfflineSaysWhatToPutWhere) {
  EXPECT_MUSTER_ERROR(RunOffline(), ExitCode::kFailure,
                      AllOf(HasSubstr(file_.url), HasSubstr(file_.checksum),
                            HasSubstr((dir_ / kName).string()), HasSubstr("muster data synth")));
  ExpectNoSet();
}

TEST_F(Download, NotFoundIsAnError) {
  const LocalServer server([](const std::string&) {
    return LocalServer::Answer{"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"};
  });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kFailure, HasSubstr("404"));
  EXPECT_EQ(server.requests().size(), 1u);
  ExpectNoSet();
}

TEST_F(Download, AWrongChecksumIsAnErrorAndTheFileGoes) {
  std::string other = bytes_;
  other.back() ^= 1;
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(other)}; });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kData, HasSubstr(Md5Of(other)));
  ExpectNoSet();
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(Download, ALongerFileIsCutOff) {
  const LocalServer server(
      [&](const std::string&) { return LocalServer::Answer{Ok(bytes_ + "more")}; });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kData, HasSubstr(file_.url));
  ExpectNoSet();
}

TEST_F(Download, ABrokenTransferIsResumed) {
  const LocalServer server([&](const std::string& request) {
    return LocalServer::Answer{Ranged(request, bytes_, bytes_.size() / 2)};
  });
  RunFrom(server);
  ExpectWhole();
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_THAT(server.requests()[1], HasSubstr(fmt::format("bytes={}-", bytes_.size() / 2)));
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
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kData, HasSubstr(file_.checksum));
  RunFrom(server);
  ExpectWhole();
}

// Opening a pipe would block forever.
TEST_F(Download, APipeInThePlaceOfAFileIsNamedAndKept) {
  for (const fs::path& path : {part(), dir_ / kName, dir_ / kCifar10Folder}) {
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_MUSTER_ERROR(RunOffline(), ExitCode::kData, HasSubstr(path.string()));
    EXPECT_TRUE(fs::is_fifo(path));
    fs::remove(path);
  }
}

// Whoever can make one in the folder would choose which file is written.
TEST_F(Download, ALinkInThePlaceOfThePartIsNotFollowed) {
  const fs::path aim = dir_ / "mine";
  WriteBytes(aim, "mine");
  fs::create_symlink(aim, part());
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(bytes_)}; });
  EXPECT_MUSTER_ERROR(RunFrom(server), ExitCode::kData, HasSubstr(part().string()));
  EXPECT_EQ(fs::file_size(aim), 4u);
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
    file_.url = url;
    try {
      DownloadCifar10(dir_.string(), file_);
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
  RunByHand();
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
    EXPECT_MUSTER_ERROR(RunByHand(), ExitCode::kData, HasSubstr(name));
    ExpectNoSet();
  }
}

TEST_F(Download, AnUnreadableArchiveIsNamed) {
  SetArchiveBytes(bytes_.substr(0, bytes_.size() / 2));
  EXPECT_MUSTER_ERROR(RunByHand(), ExitCode::kData, HasSubstr(kName));
  ExpectNoSet();
  SetArchiveBytes("this is no archive at all");
  EXPECT_MUSTER_ERROR(RunByHand(), ExitCode::kData, HasSubstr(kName));
  ExpectNoSet();
}

TEST_F(Download, AnIncompleteSetIsRefused) {
  Entries entries = GoodEntries();
  entries.erase("cifar-10-batches-bin/test_batch.bin");
  SetArchive(entries);
  EXPECT_MUSTER_ERROR(RunByHand(), ExitCode::kData, HasSubstr("test_batch.bin"));
  ExpectNoSet();
}

TEST(Weights, AreCheckedWithSha256AndGetTheNameOfTheirNetwork) {
  constexpr const char* kSha256OfAbc =
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  const TempDir dir;
  std::string sent = "abc";
  const LocalServer server([&](const std::string&) { return LocalServer::Answer{Ok(sent)}; });
  const PublishedWeights weights{"tiny",
                                 {.url = server.Url("model.safetensors"),
                                  .checksum = kSha256OfAbc,
                                  .bytes = 3,
                                  .name = "tiny.safetensors"}};
  sent = "abd";
  EXPECT_MUSTER_ERROR(DownloadWeights(dir.string(), weights), ExitCode::kData,
                      AllOf(HasSubstr(kSha256OfAbc), HasSubstr("tiny.safetensors")));
  EXPECT_FALSE(fs::exists(dir / "tiny.safetensors"));
  sent = "abc";
  DownloadWeights(dir.string(), weights);
  EXPECT_EQ(ReadBytes(dir / "tiny.safetensors"), "abc");
  for (const PublishedWeights& one : ImagenetWeights()) {
    EXPECT_EQ(one.file.checksum.size(), 64u) << one.network;
    EXPECT_EQ(one.file.name, one.network + std::string(".safetensors"));
  }
}

// Files in MNIST's layout, compressed as published.
class Mnist : public ::testing::Test {
 protected:
  Mnist() {
    Publish("train-images-idx3-ubyte.gz", Idx({3, 2, 2}, std::string(12, '\7')));
    Publish("train-labels-idx1-ubyte.gz", Idx({3}, std::string("\1\2\3")));
    Publish("t10k-images-idx3-ubyte.gz", Idx({1, 2, 2}, std::string(4, '\7')));
    Publish("t10k-labels-idx1-ubyte.gz", Idx({1}, std::string("\4")));
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
    const std::string bytes = ReadBytes(source_ / name);
    files_.push_back({name, Md5Of(bytes), static_cast<int64_t>(bytes.size())});
  }
  void RunFrom(const std::string& mirror) {
    std::vector<PublishedFile> files = files_;
    for (PublishedFile& file : files) file.url = mirror + file.url;
    DownloadMnist(dir_.string(), files);
  }

  const TempDir source_, dir_;
  std::vector<PublishedFile> files_;  // the url is the name
  const LocalServer server_{[&](const std::string& request) {
    for (const PublishedFile& file : files_) {
      if (request.find(file.url) == std::string::npos) continue;
      return LocalServer::Answer{Ok(ReadBytes(source_ / file.url))};
    }
    return LocalServer::Answer{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"};
  }};
};

TEST_F(Mnist, FromAServer) {
  RunFrom(server_.Url(""));
  EXPECT_EQ(OpenMnist(dir_.string()).train->size(), 3);
  EXPECT_EQ(OpenMnist(dir_.string()).test->size(), 1);
  EXPECT_EQ(server_.requests().size(), 4u);
  RunFrom("http://127.0.0.1:1/unreachable/");  // existing files suffice
}

TEST_F(Mnist, AWrongFileIsNotTaken) {
  files_[2].checksum = std::string(32, '0');
  EXPECT_MUSTER_ERROR(RunFrom(server_.Url("")), ExitCode::kData,
                      AllOf(HasSubstr("t10k-images"), Not(HasSubstr("synth"))));
  EXPECT_FALSE(fs::exists(dir_ / files_[2].url));
  EXPECT_TRUE(fs::exists(dir_ / files_[0].url));  // the next call resumes here
}

// Its files have the same names. They are not mixed with downloads, and none is suggested.
TEST_F(Mnist, FilesOfAnotherSetAreLeftAlone) {
  WriteBytes(dir_ / files_[3].url, "of Fashion-MNIST");
  EXPECT_MUSTER_ERROR(RunFrom(server_.Url("")), ExitCode::kData,
                      AllOf(HasSubstr("t10k-labels-idx1-ubyte.gz"), HasSubstr("another folder"),
                            Not(HasSubstr("run this again"))));
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_EQ(ReadBytes(dir_ / files_[3].url), "of Fashion-MNIST");
}

TEST_F(Mnist, OfflineSaysWhatToPutWhere) {
  EXPECT_MUSTER_ERROR(RunFrom("http://127.0.0.1:1/"), ExitCode::kFailure,
                      AllOf(HasSubstr("train-images-idx3-ubyte.gz"), HasSubstr(files_[0].checksum),
                            HasSubstr((dir_ / files_[0].url).string()), Not(HasSubstr("synth"))));
}

TEST(FashionMnist, HasTheNamesOfMnist) {
  const auto ours = FashionMnistFiles(), others = MnistFiles();
  ASSERT_EQ(ours.size(), others.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(ours[i].url.ends_with(fs::path(others[i].url).filename().string()));
    EXPECT_EQ(ours[i].checksum.size(), 32u);
  }
}

TEST_F(Mnist, AnotherSetIsNotMixedWithIt) {
  WriteBytes(dir_ / "t10k-labels-idx1-ubyte", "mine");
  EXPECT_MUSTER_ERROR(RunFrom(server_.Url("")), ExitCode::kData,
                      HasSubstr("t10k-labels-idx1-ubyte"));
  EXPECT_TRUE(server_.requests().empty());
}

}  // namespace
}  // namespace muster
