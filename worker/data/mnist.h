// MNIST (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist/) and other sets in the same
// format: train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each plain or gzip-compressed with the suffix .gz. A name may have a dot
// (train-images.idx3-ubyte), and the files may lie in raw/, MNIST/raw/ or FashionMNIST/raw/, where
// torchvision puts them.
//
// An IDX file has two zero bytes, a byte for the type of the elements (8: unsigned byte), a byte
// for the number of dimensions, the dimensions as 32-bit big-endian numbers, and the elements; the
// last dimension varies fastest. The dimensions of images are count, rows and columns; labels have
// only a count.
#pragma once

#include <memory>
#include <string>

#include "common/config/data_format.h"
#include "worker/data/dataset.h"

namespace muster {

inline constexpr int64_t kMnistClasses = 10;

// Reads the four files in `dir` into memory and checks headers, sizes, labels from 0 to 9, equal
// numbers of labels and images, and equal sizes of training and test images. Any number of images,
// at least one, and any image size is allowed. A plain file takes precedence over a compressed one.
// `set` is the one expected: a remark says if its files are Fashion-MNIST's instead of MNIST's, and
// the opposite is an error. Throws Error(kData) with the file, the expectation and what was found.
Datasets OpenMnist(const std::string& dir, MnistSet set = MnistSet::kDigits);
// Does the same for the two test files only.
std::unique_ptr<Dataset> OpenMnistTest(const std::string& dir, MnistSet set = MnistSet::kDigits);

}  // namespace muster
