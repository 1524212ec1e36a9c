"""manta.data: rows that are read, changed and handed to training loops block by block, in bounded memory.

    import manta.data

    ds = manta.data.read_csv("data/*.csv").map_batches(lambda batch: {**batch, "x": batch["x"] / 255})
    for batch in ds.iter_batches(batch_size=64): ...
    TorchTrainer(loop, datasets={"train": ds})

Names are Ray Data's; what is not here raises NotImplementedError. Needs numpy; pandas, pyarrow, torch and TensorFlow are
imported where they are asked for. docs/data-python.md says how it works.

| module | what it has |
|---|---|
| read, dataset, grouped_data, iterator, context | where datasets begin; their operations; groups; batches; sizes |
| _block, _ops, _plan | blocks of rows; what is done to them; a dataset before it is executed |
| _execute, _barriers, _split | the streaming; what needs all rows; shards for ranks |
| _files, _tfrecord, _webdataset, _write, _aggregate, _need | readers, writers, numbers of columns; packages |
"""
from manta.data._need import need as _need

_need("numpy", "manta.data")

from manta.data.context import DataContext, ExecutionOptions, ExecutionResources  # noqa: E402
from manta.data.dataset import ActorPoolStrategy, Dataset, MaterializedDataset, Schema, TaskPoolStrategy  # noqa: E402
from manta.data.grouped_data import GroupedData  # noqa: E402
from manta.data.iterator import DataIterator  # noqa: E402
from manta.data.preprocessor import Preprocessor  # noqa: E402
from manta.data.read import (FileShuffleConfig, from_arrow, from_items, from_numpy, from_pandas, range,  # noqa: E402
                             range_tensor, read_binary_files, read_csv, read_images, read_json, read_numpy,
                             read_parquet, read_text, read_tfrecords, read_webdataset)

__all__ = [
    "ActorPoolStrategy", "DataContext", "DataIterator", "Dataset", "ExecutionOptions", "ExecutionResources",
    "FileShuffleConfig", "GroupedData", "MaterializedDataset", "Preprocessor", "Schema", "TaskPoolStrategy", "from_arrow",
    "from_items", "from_numpy", "from_pandas", "range", "range_tensor", "read_binary_files", "read_csv", "read_images",
    "read_json", "read_numpy", "read_parquet", "read_text", "read_tfrecords", "read_webdataset",
]

# What Ray Data has and this does not.
_MISSING = (
    "BlockBasedFileDatasink", "Datasink", "Datasource",
    "FileBasedDatasource", "NodeIdStr", "RandomAccessDataset", "RowBasedFileDatasink", "SaveMode", "aggregate",
    "block", "datasource", "expressions", "from_arrow_refs", "from_blocks", "from_daft", "from_dask", "from_huggingface",
    "from_mars", "from_modin", "from_numpy_refs", "from_pandas_refs", "from_spark", "from_tf", "from_torch", "llm",
    "read_audio", "read_avro", "read_bigquery", "read_clickhouse", "read_databricks_tables",
    "read_datasource", "read_delta", "read_delta_sharing_tables", "read_hudi", "read_iceberg", "read_kafka", "read_lance",
    "read_mcap", "read_mongo", "read_parquet_bulk", "read_snowflake", "read_sql", "read_unity_catalog", "read_videos", "set_progress_bars",
)


def __getattr__(name: str) -> object:
    if name in _MISSING:
        raise NotImplementedError(f"ray.data.{name} is not part of manta.data")
    from manta.data._need import did_you_mean
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + did_you_mean(name, __all__))
