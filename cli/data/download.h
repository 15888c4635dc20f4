// `muster data get`: published data sets, downloaded, checked and unpacked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace muster {

// Writes the regular files that lie directly in `folder` of the .tar.gz `archive` into the existing
// directory `target`, each whole and on the disk. Anything else in the archive but directories
// (links, other folders, paths with "..") is refused, so nothing is written elsewhere.
// Throws Error: kData for a bad archive, kFailure for the disk.
void Unpack(const std::filesystem::path& archive, const std::string& folder,
            const std::filesystem::path& target);

struct PublishedFile {
  std::string url, md5;  // the publisher gives an MD5
  int64_t bytes;
};

// CIFAR-10's binary version, from https://www.cs.toronto.edu/~kriz/cifar.html.
PublishedFile Cifar10Archive();
// MNIST's four files, from the mirror that PyTorch's torchvision uses. The checksums are those of
// torchvision's datasets/mnist.py.
std::vector<PublishedFile> MnistFiles();
// Fashion-MNIST's four files, which have the same names, with the checksums that its README gives.
std::vector<PublishedFile> FashionMnistFiles();

// Leaves CIFAR-10 in dir/cifar-10-batches-bin, and MNIST's four files, compressed, in `dir`. Does
// nothing but say so if the set is already there. A file that somebody put in `dir`, under the name
// it has in its URL, is used instead of the network; another file in its place is refused.
//
// Each appears whole, by rename, or not at all. An interruption leaves at most FILE.part, which the
// next call resumes, and a hidden folder, which it removes.
//
// Throws Error: kData for a wrong file, or if something else is in the place of the set; kFailure
// for the network and the disk. The message says what to put where by hand.
void DownloadCifar10(const std::string& dir, const PublishedFile& archive = Cifar10Archive());
void DownloadMnist(const std::string& dir, const std::vector<PublishedFile>& files = MnistFiles(),
                   const std::string& name = "MNIST");

}  // namespace muster
