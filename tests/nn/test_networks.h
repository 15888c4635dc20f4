// Small networks that together use every layer, every fusion and every kind of branch.
#pragma once

#include "common/graph/shape.h"

namespace muster {

struct NetworkCase {
  const char* name;
  Shape input;
  const char* layers;
};

inline const NetworkCase kNetworks[] = {
    {"Tutorial", {12, 12, 3}, R"(
       layer { name: "conv1" conv2d { filters: 16 kernel: 5 padding: SAME } }
       layer { name: "relu1" relu {} }
       layer { name: "pool1" max_pool { kernel: 3 stride: 2 padding: SAME } }
       layer { name: "norm1" lrn { depth_radius: 4 bias: 1 alpha: 0.1 beta: 0.75 } }
       layer { name: "conv2" conv2d { filters: 16 kernel: 5 padding: SAME } }
       layer { name: "relu2" relu {} }
       layer { name: "norm2" lrn { depth_radius: 4 bias: 1 alpha: 0.1 beta: 0.75 } }
       layer { name: "pool2" max_pool { kernel: 3 stride: 2 padding: SAME } }
       layer { name: "local3" dense { units: 24 } }
       layer { name: "relu3" relu {} }
       layer { name: "logits" dense { units: 10 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    {"Dropout", {6, 7, 1}, R"(
       layer { name: "conv1" conv2d { filters: 5 kernel: 3 } }
       layer { name: "conv2" conv2d { filters: 8 kernel: 2 stride: 2 padding: SAME } }
       layer { name: "relu2" relu {} }
       layer { name: "flat" flatten {} }
       layer { name: "drop0" dropout { rate: 0.2 } }
       layer { name: "dense1" dense { units: 20 } }
       layer { name: "relu1" relu {} }
       layer { name: "drop1" dropout { rate: 0.5 } }
       layer { name: "dense2" dense { units: 12 } }
       layer { name: "drop2" dropout { rate: 0.3 } }
       layer { name: "relu3" relu {} }
       layer { name: "dense3" dense { units: 3 use_bias: false } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // Layers without variables first, and relu in unusual places.
    {"Unusual", {9, 8, 4}, R"(
       layer { name: "norm" lrn { depth_radius: 1 alpha: 0.5 } }
       layer { name: "relu0" relu {} }
       layer { name: "avg" avg_pool { kernel: 3 stride: 1 padding: SAME } }
       layer { name: "conv" conv2d { filters: 8 kernel: 3 padding: SAME } }
       layer { name: "max" max_pool { kernel: 2 } }
       layer { name: "relu1" relu {} }
       layer { name: "relu2" relu {} }
       layer { name: "avg2" avg_pool { kernel: 2 padding: SAME } }
       layer { name: "relu3" relu {} }
       layer { name: "drop" dropout { rate: 0.25 } }
       layer { name: "logits" dense { units: 6 } }
       layer { name: "relu4" relu {} }
       layer { name: "loss" softmax_cross_entropy {} })"},
    {"OneLogit", {5, 4, 2}, R"(
       layer { name: "conv" conv2d { filters: 4 kernel: 3 } }
       layer { name: "logit" dense { units: 1 } }
       layer { name: "loss" sigmoid_cross_entropy {} })"},
    // A block that keeps its shape, one that does not, and an output read three times.
    {"Residual", {8, 7, 3}, R"(
       layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn1" batch_norm {} }
       layer { name: "relu1" relu {} }
       layer { name: "conv2" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn2" batch_norm {} }
       layer { name: "relu2" relu {} }
       layer { name: "conv3" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn3" batch_norm {} }
       layer { name: "add3" input: ["bn3", "relu1"] add {} }
       layer { name: "relu3" relu {} }
       layer { name: "conv4" conv2d { filters: 16 kernel: 3 stride: 2 padding: SAME use_bias: false } }
       layer { name: "bn4" batch_norm {} }
       layer { name: "short" input: "relu3" conv2d { filters: 16 kernel: 1 stride: 2
                                                     use_bias: false } }
       layer { name: "bn_short" batch_norm {} }
       layer { name: "add4" input: ["bn4", "bn_short"] add {} }
       layer { name: "relu4" relu {} }
       layer { name: "bn_more" batch_norm {} }
       layer { name: "relu_more" relu6 {} }
       layer { name: "three" input: ["relu4", "relu_more", "relu4"] add {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "logits" dense { units: 5 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // Fused and separate relus whose outputs have several readers of different kinds; data read
    // twice; sums without normalisation; layers between them that move nothing.
    {"Branches", {6, 6, 4}, R"(
       layer { name: "conv1" conv2d { filters: 6 kernel: 3 padding: SAME } }
       layer { name: "relu1" relu {} }
       layer { name: "side" input: "data" conv2d { filters: 6 kernel: 1 } }
       layer { name: "cat" input: ["relu1", "data", "side"] concat {} }
       layer { name: "conv2" conv2d { filters: 6 kernel: 3 padding: SAME groups: 2 } }
       layer { name: "add2" input: ["conv2", "relu1", "side"] add {} }
       layer { name: "relu2" relu {} }
       layer { name: "max" input: "relu2" max_pool { kernel: 3 stride: 1 padding: SAME } }
       layer { name: "avg" input: "relu2" avg_pool { kernel: 3 stride: 1 padding: SAME } }
       layer { name: "relu6" relu6 {} }
       layer { name: "add3" input: ["max", "relu6"] add {} }
       layer { name: "relu3" relu {} }
       layer { name: "relu3b" relu {} }
       layer { name: "drop3" dropout { rate: 0.2 } }
       layer { name: "add4" input: ["drop3", "relu3b"] add {} }
       layer { name: "flat" flatten {} }
       layer { name: "dense1" input: "flat" dense { units: 9 } }
       layer { name: "drop" input: "flat" dropout { rate: 0.25 } }
       layer { name: "dense2" dense { units: 9 } }
       layer { name: "relu5" relu {} }
       layer { name: "soft" softmax {} }
       layer { name: "twice" input: ["dense1", "dense1"] add {} }
       layer { name: "cat2" input: ["soft", "twice", "relu5"] concat {} }
       layer { name: "logits" dense { units: 4 } }
       layer { name: "loss" softmax_cross_entropy { label_smoothing: 0.1 } })"},
    // Mobile blocks: depthwise, relu6 fused into the norm and after a convolution, a norm of the
    // data.
    {"Mobile", {7, 7, 3}, R"(
       layer { name: "bn0" batch_norm { running_variance: BIASED } }
       layer { name: "conv1" conv2d { filters: 8 kernel: 3 stride: 2 padding: SAME } }
       layer { name: "relu1" relu6 {} }
       layer { name: "expand" conv2d { filters: 24 kernel: 1 use_bias: false } }
       layer { name: "bn1" batch_norm {} }
       layer { name: "relu2" relu6 {} }
       layer { name: "depthwise" conv2d { filters: 24 kernel: 3 padding: SAME groups: 24
                                          use_bias: false } }
       layer { name: "bn2" batch_norm {} }
       layer { name: "relu3" relu6 {} }
       layer { name: "project" conv2d { filters: 8 kernel: 1 use_bias: false } }
       layer { name: "bn3" batch_norm {} }
       layer { name: "add" input: ["relu1", "bn3"] add {} }
       layer { name: "relu4" relu6 {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "logits" dense { units: 3 } }
       layer { name: "loss" mean_squared_error {} })"},
    {"OneLayer", {1, 1, 7}, R"(
       layer { name: "logits" dense { units: 4 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // Normalisations of samples and pixels: after convolutions, of the data, of a row, before a
    // fused relu, with several readers.
    {"GroupNorms", {6, 5, 4}, R"(
       layer { name: "ln0" layer_norm {} }
       layer { name: "conv1" conv2d { filters: 12 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "gn1" group_norm { groups: 3 } }
       layer { name: "relu1" relu {} }
       layer { name: "conv2" conv2d { filters: 12 kernel: 3 padding: SAME } }
       layer { name: "gn2" group_norm { groups: 1 } }
       layer { name: "sum" input: ["gn2", "relu1"] add {} }
       layer { name: "ln3" layer_norm { epsilon: 0.01 } }
       layer { name: "gelu" gelu {} }
       layer { name: "cat" input: ["gelu", "gn2", "ln3"] concat {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "ln4" layer_norm {} }
       layer { name: "relu4" relu {} }
       layer { name: "logits" dense { units: 4 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // Functions whose slopes need their inputs or outputs: beside layers that overwrite, after a
    // fused relu, in a chain, and with several readers.
    {"Smooth", {6, 5, 3}, R"(
       layer { name: "tanh0" tanh {} }
       layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: SAME } }
       layer { name: "gelu1" gelu {} }
       layer { name: "conv2" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn2" batch_norm {} }
       layer { name: "silu2" silu {} }
       layer { name: "drop2" dropout { rate: 0.2 } }
       layer { name: "sum" input: ["drop2", "gelu1", "silu2"] add {} }
       layer { name: "pad3" reflect_pad { pad: [2, 1] } }
       layer { name: "conv3" conv2d { filters: 8 kernel: [5, 3] } }
       layer { name: "relu3" relu {} }
       layer { name: "sigmoid3" sigmoid {} }
       layer { name: "leaky3" input: "conv3" leaky_relu { slope: 0.125 } }
       layer { name: "gelu3" gelu { approximate: TANH } }
       layer { name: "cat" input: ["sigmoid3", "gelu3", "sum"] concat {} }
       layer { name: "leaky" leaky_relu {} }
       layer { name: "pool" max_pool { kernel: 2 } }
       layer { name: "hidden" dense { units: 9 } }
       layer { name: "silu" silu {} }
       layer { name: "tanh" tanh {} }
       layer { name: "logits" dense { units: 4 } }
       layer { name: "sigmoid" sigmoid {} }
       layer { name: "loss" mean_squared_error {} })"},
    // Frozen layers before all that learn, which have no backward pass, and a norm between others.
    {"Frozen", {6, 6, 3}, R"(
       layer { name: "stem/conv" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "stem/bn" batch_norm {} }
       layer { name: "relu0" relu {} }
       layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn1" batch_norm {} }
       layer { name: "sum" input: ["bn1", "relu0"] add {} }
       layer { name: "relu1" relu {} }
       layer { name: "bn2" batch_norm {} }
       layer { name: "relu2" relu6 {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "logits" dense { units: 3 } }
       layer { name: "loss" softmax_cross_entropy {} }
       freeze: ["stem/*", "bn1", "bn2"])"},
    // A frozen branch, whose norm adds one that learns.
    {"FrozenBranch", {6, 6, 3}, R"(
       layer { name: "shortcut" conv2d { filters: 8 kernel: 1 } }
       layer { name: "conv" input: "data" conv2d { filters: 8 kernel: 3 padding: SAME } }
       layer { name: "bn" batch_norm {} }
       layer { name: "sum" input: ["bn", "shortcut"] add {} }
       layer { name: "relu" relu {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "logits" dense { units: 3 } }
       layer { name: "loss" softmax_cross_entropy {} }
       freeze: ["conv", "bn"])"},
};

}  // namespace muster
