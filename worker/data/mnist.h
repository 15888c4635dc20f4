// MNIST (LeCun, Cortes, Burges; http://yann.lecun.com/exdb/mnist/) and other sets in its files:
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each plain or gzip-compressed with .gz behind its name.
//
// IDX: two zero bytes, one for the type of the elements (8: unsigned byte), one for the number of
// dimensions, the dimensions as 32-bit big-endian numbers, then the elements, the last dimension
// fastest. Images: count, rows, columns. Labels: count.
#pragma once

#include <memory>
#include <string>

#include "worker/data/dataset.h"

namespace muster {

inline constexpr int64_t kMnistClasses = 10;

// Reads the four files in `dir` into memory and checks them: headers, sizes, labels from 0 to 9,
// as many labels as images, training and test images of one size. Any number of images, at least
// one, and any size of them is allowed. Where a file is there both plain and compressed, the plain
// one is read. Throws Error(kData) that names the file, what was expected and what is there.
Datasets OpenMnist(const std::string& dir);
// The same of the two test files alone.
std::unique_ptr<Dataset> OpenMnistTest(const std::string& dir);

}  // namespace muster
