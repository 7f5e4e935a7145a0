# Installation: the executable, the headers, the libraries, and what find_package(dtrain) reads.
