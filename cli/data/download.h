// `muster data get`: downloads, checks and unpacks published data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace muster {

// Writes the regular files directly in `folder` of the .tar.gz `archive` to the existing directory
// `target`, each atomically. Rejects all other entries except directories (links, files of other
// folders, paths with ".."), so that nothing is written elsewhere. Throws Error: kData if the
// archive is bad, kFailure if the disk fails.
void Unpack(const std::filesystem::path& archive, const std::string& folder,
            const std::filesystem::path& target);

struct PublishedFile {
  std::string url, checksum;  // in hex: a SHA-256 or, if the publisher gives no better, an MD5
  int64_t bytes;
  std::string name = "";  // of the file to write; empty: the last part of the URL
};

// The binary version of CIFAR-10, from https://www.cs.toronto.edu/~kriz/cifar.html.
PublishedFile Cifar10Archive();
// The four files of MNIST, from the mirror that PyTorch's torchvision uses, with the checksums of
// torchvision's datasets/mnist.py.
std::vector<PublishedFile> MnistFiles();
// The four files of Fashion-MNIST, which have the same names, with the checksums of its README.
std::vector<PublishedFile> FashionMnistFiles();

// Writes CIFAR-10 to dir/cifar-10-batches-bin, and MNIST's four compressed files to `dir`. If the
// set exists, only reports that. If `dir` has a file with the name in the URL, uses that file
// instead of the network, and fails if it is not the published one.
//
// Each set or file appears atomically. An interruption leaves at most FILE.part, which the next
// call resumes, and a hidden folder, which the next call removes.
//
// Throws Error: kData if a file is wrong or something else is in the place of the set; kFailure if
// the network or the disk fails. The message says which file to copy by hand, and where to.
void DownloadCifar10(const std::string& dir, const PublishedFile& archive = Cifar10Archive());
void DownloadMnist(const std::string& dir, const std::vector<PublishedFile>& files = MnistFiles(),
                   const std::string& name = "MNIST");

// Weights of torchvision for ImageNet, with torchvision's names.
struct PublishedWeights {
  const char* network;  // the name of the file, without .safetensors
  PublishedFile file;
};
const std::vector<PublishedWeights>& ImagenetWeights();

// Where these weights are unless a config says otherwise.
inline constexpr const char* kWeightsFolder = "weights";

// Writes dir/NETWORK.safetensors, as DownloadMnist does.
void DownloadWeights(const std::string& dir, const PublishedWeights& weights);

}  // namespace muster
