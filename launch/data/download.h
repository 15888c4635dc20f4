// Getting a published data set: download, check, unpack.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace muster {

// Where an archive is and what it must be. The defaults are CIFAR-10's binary version as its
// publisher gives it on https://www.cs.toronto.edu/~kriz/cifar.html.
struct DownloadOptions {
  std::string url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
  std::string md5 = "c32a1d4ab5d03f1284b67883e8d87530";
  int64_t bytes = 170052171;
  int attempts = 3;               // each goes on where the one before stopped
  double connect_timeout_s = 30;  // to be connected
  double stall_timeout_s = 30;    // with less than 1 kB/s
  bool stand_in = true;           // errors speak of `muster data synth`
  std::FILE* out = stdout;        // what was done, one line each
  std::FILE* progress = stderr;   // one live line on a terminal, a line every 10 % elsewhere
};

// Leaves CIFAR-10 in dir/cifar-10-batches-bin. Does nothing but say so where a valid one is there
// already. An archive that is already in `dir`, under the name it has in the URL, is used instead
// of the network.
//
// The data set appears whole, by rename, or not at all. An interruption, by a signal too, leaves
// at most the downloaded part (dir/<archive>.part), where the next call goes on, and a
// hidden directory that the next call removes.
//
// Throws Error: kData for a wrong archive or something else in the place of the data set,
// kFailure for the network and the disk. The message says what to put where by hand.
void DownloadCifar10(const std::string& dir, const DownloadOptions& options = {});

// The published files of MNIST, from the mirror that PyTorch's torchvision uses (torchvision's
// datasets/mnist.py has the checksums, too).
struct MnistFile {
  std::string name, md5;
  int64_t bytes;
};
std::vector<MnistFile> MnistFiles();
inline constexpr const char* kMnistMirror = "https://ossci-datasets.s3.amazonaws.com/mnist/";

// Leaves MNIST's four files, compressed as published, in `dir`; each appears whole or not at all.
// Files that are there already are kept. `options` names the mirror (url) and the times; what it
// says of an archive is not read. Throws as DownloadCifar10 does.
void DownloadMnist(const std::string& dir, const std::vector<MnistFile>& files = MnistFiles(),
                   DownloadOptions options = {.url = kMnistMirror});

}  // namespace muster
