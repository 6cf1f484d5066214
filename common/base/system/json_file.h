/* Read JSON files. */
#ifndef GP_JSON_FILE_H
#define GP_JSON_FILE_H

#include <stddef.h>

#include "common/base/error.h"
#include "common/base/text/json.h"

/* Read and parse a JSON file; free *out with gp_json_free(). After an error, *out is NULL.
 *   bytes_max  largest accepted size
 * GP_ENOENT: no such file. GP_ECORRUPT: invalid JSON, larger than bytes_max, or not a regular file.
 * GP_EIO, GP_ENOMEM: the file cannot be read now, for example on a network file system. */
gp_status gp_json_file_read(gp_json **out, const char *path, size_t bytes_max, gp_error *err);

#endif
