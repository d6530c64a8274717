package aitercmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/aiter-go/aiter/device"
	"github.com/aiter-go/aiter/tensor"
)

const devicesLong = `List the devices that operators can run on: the GPUs that the vendors' libraries find,
and the CPU. The first one is the default of run, test and bench.`

// deviceItem is a device in a list.
type deviceItem struct {
	Device   string `json:"device"` // as --device accepts it: "cuda:0"
	Name     string `json:"name"`
	Target   string `json:"target"`    // of code for it, as --arch accepts it
	Memory   int64  `json:"memory"`    // bytes, 0 if unknown
	Units    int    `json:"units"`     // multiprocessors, as the vendor counts them; 0 for the CPU
	ClockMHz int    `json:"clock_mhz"` // boost clock; 0 for the CPU
	Driver   string `json:"driver"`    // version of the kernel driver, "" if it is unknown
	Library  string `json:"library"`   // of the vendor, "" for the CPU
}

func newDevices(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the devices of this machine",
		Long:    devicesLong,
		Example: "  aiterctl devices\n  aiterctl devices --json",
		Args:    args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.printDevices(cmd.Context()) },
	}
}

func (a *app) printDevices(context.Context) error {
	devs, err := a.openDevices()
	if err != nil {
		return err
	}
	defer devs.Close()
	list := []deviceItem{}
	for _, kind := range []tensor.DeviceType{tensor.ROCM, tensor.CUDA, tensor.CPU} {
		some, err := devicesOf(devs, kind)
		if err != nil {
			return err
		}
		list = append(list, some...)
	}
	if a.json {
		return a.writeJSON(map[string]any{"devices": list})
	}
	rows := [][]string{{"DEVICE", "TARGET", "MEMORY", "MULTIPROCESSORS", "DRIVER", "NAME"}}
	for _, x := range list {
		rows = append(rows, []string{x.Device, x.Target, orDash(x.Memory > 0, formatSize(x.Memory)), orDash(x.Units > 0, fmt.Sprint(x.Units)),
			orDash(x.Driver != "", x.Driver), x.Name})
	}
	return a.table(rows)
}

// orDash returns text, or "-" if it is not known.
func orDash(known bool, text string) string {
	if !known {
		return "-"
	}
	return text
}

// devicesOf lists the devices of one kind, none if the vendor's library is not installed.
func devicesOf(devs *device.Devices, kind tensor.DeviceType) ([]deviceItem, error) {
	drv, err := devs.Driver(kind)
	var none *device.UnavailableError
	if errors.As(err, &none) && none.Library == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []deviceItem
	for i := range drv.Count() {
		info, err := drv.Info(i)
		if err != nil {
			return nil, err
		}
		dev := tensor.Device{Type: kind, ID: int32(i)}
		list = append(list, deviceItem{
			Device: dev.String(), Name: info.Name, Target: info.Target.String(), Memory: info.Memory, Units: info.Units,
			ClockMHz: info.ClockMHz, Driver: driverVersion(kind), Library: drv.Library(),
		})
	}
	return list, nil
}
