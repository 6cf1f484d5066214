/* download.h -- what a download shows: nothing for the first two seconds, then a line that moves. */
#ifndef GP_CLI_DOWNLOAD_H
#define GP_CLI_DOWNLOAD_H

#include <stdint.h>

#include "client/cli/cli.h"
#include "common/data/get.h"

typedef struct download_view {
    int64_t begin_ms, told_ms;
} download_view;

/* Options for gp_get_fetch() that show it and end at Ctrl-C.  url: a mirror, or "". */
gp_get_options download_begin(const cli_call *call, download_view *view, const char *url);
void download_end(const download_view *view); /* wipes the line */

#endif
