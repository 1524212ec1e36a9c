/* cli/scale.h - more and fewer workers while a training runs. */
#ifndef CLI_SCALE_H
#define CLI_SCALE_H

/* From here on SIGUSR1 asks for a worker more, SIGUSR2 for one less. */
void scale_install(void);

/* How many more (or, negative, fewer) were asked for since the last call. */
int scale_take(void);

#endif
