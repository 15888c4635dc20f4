// A plugin that an update of the programs left behind.
extern "C" int muster_cuda_plugin_version() { return -1; }
