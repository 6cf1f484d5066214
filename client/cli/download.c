#include "client/cli/download.h"

#include <unistd.h>

#include "common/base/clock.h"

static int download_progress(void *context, const char *file, uint64_t bytes, uint64_t total)
{
    download_view *shown = context;
    int64_t now = gp_now_ms();
    char have[40], all[40];

    if (now - shown->begin_ms >= 2000 && now - shown->told_ms >= 200) {
        shown->told_ms = now;
        fprintf(stderr, "\r%s: %s%s%s\033[K", file, cli_bytes((double)bytes, have, sizeof(have)),
                total != 0 ? " of " : "", total != 0 ? cli_bytes((double)total, all, sizeof(all)) : "");
    }
    return cli_stop != 0;
}

gp_get_options download_begin(const cli_call *call, download_view *view, const char *url)
{
    const cli_common *common = call->options;

    cli_catch_interrupts();
    *view = (download_view){ .begin_ms = gp_now_ms() };
    return (gp_get_options){ .url = url[0] != '\0' ? url : NULL,
                             .progress = common->quiet || !isatty(2) ? NULL : download_progress,
                             .context = view };
}

void download_end(const download_view *view)
{
    if (view->told_ms != 0)
        fprintf(stderr, "\r\033[K");
}
