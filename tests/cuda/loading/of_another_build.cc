// A plugin that an update of the programs left behind.
extern "C" const char* muster_cuda_plugin_build() { return "0123456789abcdef"; }
